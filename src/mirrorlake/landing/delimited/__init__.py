"""Landed delimited text: what is in a file, and its rows in the types of the table (section 9).

compression   leading bytes, unpacking in bounded memory
encodings     any encoding to UTF-8
tokens        where the fields are
records       blocks of whole rows
convert       texts to values of the declared types
reader        header and rows against the table's columns
"""

from mirrorlake.landing.delimited.reader import inspect, read

__all__ = ["inspect", "read"]
