"""The whole: capture and mirror together, verification, the demo."""
