"""Landed delimited text: what is in a file, and its rows in the types of the table (section 9).

compression   leading bytes, unpacking in bounded memory
encodings     any encoding to UTF-8
tokens        where the fields are
survey        what a stretch of text does to a reader that comes into it
parts         a large text cut where rows begin
records       blocks of whole rows
convert       texts to values of the declared types
columns       the columns of the table by header and declared schema
reader        rows of the table, all at once, in pieces, or by several threads
"""

from mirrorlake.landing.text.reader import has_marker, inspect, read, read_blocks

__all__ = ["has_marker", "inspect", "read", "read_blocks"]
