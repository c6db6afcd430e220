"""The messages of the API: lower camel case in JSON, unknown fields refused (ST-347)."""
