"""The state beside tables of events: for each key its last events, or the identities of all
events."""
