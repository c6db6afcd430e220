"""The version of this package, for rooms that may not import the whole of it."""

VERSION = "0.1.0"
