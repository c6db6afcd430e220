"""The pages for people: rendered here, of what the commands and the API answer."""
