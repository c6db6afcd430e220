"""Rows in whatever form people have them."""
