"""Rows in any form that users have them."""
