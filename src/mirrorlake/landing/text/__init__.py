"""Landed delimited text: its schema, and its rows in the types of the table (section 9).

compression   detection by the first bytes, decompression in bounded memory
encodings     any encoding to UTF-8
tokens        the offsets of the fields
survey        how a range of text changes the state of a reader that enters it
splits        a large text in parts that begin with a row
records       blocks of whole rows
convert       texts to values of the declared types
columns       the columns of the table by header and declared schema
reader        rows of the table, all at once, in blocks, or by several threads
"""

from mirrorlake.landing.text.reader import inspect, read, read_blocks

__all__ = ["inspect", "read", "read_blocks"]
