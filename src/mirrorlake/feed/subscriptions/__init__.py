"""Subscriptions: named readers of a table whose position is stored (CF-052 to CF-054)."""
