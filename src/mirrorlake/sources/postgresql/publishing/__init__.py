"""The publications of a mirror, and how changes of its tables stay possible to their users."""
