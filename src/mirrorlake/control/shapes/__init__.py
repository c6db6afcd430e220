"""The shapes of the API's messages: lower camel case in JSON, unknown fields refused (ST-347)."""
