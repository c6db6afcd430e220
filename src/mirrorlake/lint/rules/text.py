"""Rules on delimited-text files and their rows (section 9): what there is to say."""

from __future__ import annotations

from mirrorlake.lint.finding import Rule, Severity, Version

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

UNDESCRIBED = Rule(
    "LZ-042",
    "text-without-metadata",
    "A table folder has text files and no _metadata.json",
    ERROR,
    "_metadata.json with the members for delimited text",
    "How text is written cannot be guessed: the folder is not read before the file exists, "
    "whatever `metadata_required` says.",
    "Write it, with `keyColumns`, `FileExtension` and `FileFormatTypeProperties`.",
    "orders/00000000000000000001.csv",
    also=("LZ-029",),
)
NOT_IN_V1 = Rule(
    "LZ-143",
    "text-in-v1",
    "A text file stands where the v1 page allows Parquet only",
    ERROR,
    "Parquet",
    "The v1 page supports Parquet as the only format. Delimited text came with the v2 page.",
    "Write Parquet, or lint with `--version v2`.",
    "orders/00000000000000000001.csv",
    only=Version.V1,
    also=("LZ-144",),
)
NO_EXTENSION = Rule(
    "LZ-160",
    "extension-not-declared",
    "A table with text files does not declare FileExtension",
    WARNING,
    "FileExtension in _metadata.json",
    "The v2 page requires the member for delimited text. Our engine takes `csv` without it, as "
    "widely used publishers leave it out.",
    'Write `"FileExtension": "csv"`.',
    '{"keyColumns": ["id"], "FileFormat": "csv"}',
    strict=ERROR,
    only=Version.V2,
    also=("LZ-333",),
)
UNDECLARED = Rule(
    "LZ-192",
    "schema-absent",
    "A table with text files declares no columns",
    NOTE,
    "SchemaDefinition with a name and a type for each column",
    "Without `SchemaDefinition` every column is a nullable `String`.",
    "Declare the columns, unless text is what readers want.",
    '{"keyColumns": ["id"], "FileExtension": "csv"}',
    only=Version.V2,
    also=("LZ-174", "LZ-334"),
)
COMPRESSED_NAME = Rule(
    "LZ-209",
    "compressed-extension",
    "A text file has the extension of its compression",
    None,
    "the declared extension alone",
    "Compression is told by the first bytes of a file. Our engine accepts `.csv.gz` and `.csv.zst` "
    "as well; the pages know only the declared extension.",
    "Name the file by the declared extension.",
    "orders/00000000000000000001.csv.gz",
    strict=WARNING,
)

NO_HEADER = Rule(
    "LZ-159",
    "header-absent",
    "A text file has no header",
    ERROR,
    "the names of the columns in the first row",
    "Columns are matched to the header by name. A file without any text has no header, nor has one "
    "whose first row names none of the declared columns; a file with only a header is valid, and "
    "creates the table.",
    "Write the header in the first row of every file, also when no rows follow.",
    "orders/00000000000000000001.csv that holds a line end",
    also=("LZ-198",),
)
ENCODED = Rule(
    "LZ-167",
    "bytes-not-of-encoding",
    "A text file is not in the declared encoding",
    ERROR,
    "text in the Encoding of _metadata.json, UTF-8 without one",
    "Bytes that are no text of the encoding would become other characters; nothing of the file is "
    "applied.",
    "Write the file in the declared encoding, or declare the one it has.",
    "the byte 0xE4 (ä in windows-1252) in a file that is declared as UTF-8",
)
UNDECLARED_COLUMN = Rule(
    "LZ-193",
    "column-not-declared",
    "A text file has a column that SchemaDefinition does not declare",
    WARNING,
    "the declared columns, and the marker",
    "With a declared schema such a column is ignored: its values are not stored.",
    "Declare the column in `SchemaDefinition`, or leave it out of the file.",
    "id,name,seqNum",
    also=("LZ-168", "LZ-344"),
)
DECLARED_ABSENT = Rule(
    "LZ-195",
    "declared-column-absent",
    "A text file lacks a column that SchemaDefinition declares",
    NOTE,
    "every declared column in every file",
    "A declared column that the file lacks is NULL in all of its rows.",
    "Write the column, with empty fields where there is no value.",
    "id",
)
REQUIRED_ABSENT = Rule(
    "LZ-195",
    "required-column-absent",
    "A text file lacks a column that may not be NULL",
    ERROR,
    "every column that is declared as not nullable",
    "A declared column that the file lacks is NULL, and this one may not be. Only rows that delete "
    "need no more than the key.",
    "Write the column, or declare it nullable.",
    'id, while name is declared with "IsNullable": false',
)
FIELDS = Rule(
    "LZ-199",
    "field-count",
    "A row has not as many fields as the header",
    ERROR,
    "as many fields in every row as in the header",
    "It cannot be told which field belongs to which column. A delimiter in a value that is not "
    "quoted is the usual cause.",
    "Quote values that hold the separator, a quote or a line end.",
    "id,name\n1,Smith, Anna",
)
HEADER_TWICE = Rule(
    "LZ-199",
    "header-name-twice",
    "A name stands twice in the header",
    ERROR,
    "a name of its own for every column",
    "Columns are matched to the header by name, and two have this one.",
    "Rename one of them.",
    "id,name,name",
)
LINE_END = Rule(
    "LZ-200",
    "line-end",
    "Rows end with another line end than the one declared",
    NOTE,
    "rows that end with \\r\\n",
    "Where `\\r\\n` is declared, or nothing is, our engine accepts a bare `\\n` as well: published "
    "files have it. A strict reader refuses it.",
    "Declare `RowSeparator` as the files have it.",
    "RowSeparator \\r\\n, and rows that end with \\n",
    strict=ERROR,
    also=("LZ-162", "LZ-336"),
)
LAST_LINE = Rule(
    "LZ-200",
    "last-line-end",
    "The last row has no line end",
    None,
    "a line end after the last row",
    "Our engine does not need it; a strict reader takes the file for cut off.",
    "End every row with the row separator.",
    "id,name\n1,Anna",
    strict=ERROR,
    also=("LZ-336",),
)
QUOTES = Rule(
    "LZ-201",
    "quotes",
    "Quotes do not close where a field ends",
    ERROR,
    "quotes around whole values, and those inside doubled or escaped",
    "Inside quotes the escape character makes a following quote or escape character literal, and a "
    "doubled quote is one literal quote. Anything else behind a closing quote, or no closing quote "
    "at all, leaves open where the field ends.",
    "Double or escape every quote inside a quoted value, and escape the escape character.",
    'id,name\n1,"Anna "the" second"',
    also=("LZ-164", "LZ-165"),
)
REQUIRED_NULL = Rule(
    "LZ-205",
    "required-null",
    "A value is NULL in a column that may not be",
    ERROR,
    "a value in every column that is declared as not nullable, and in the key",
    "A column with `IsNullable` false holds no NULL, and neither does a key column unless it is "
    "declared nullable. Only non-key columns of rows that delete may be empty.",
    "Write a value, or declare the column nullable. Mind `NullValue`: a field equal to it is NULL.",
    'id,name\n1,\nwith name declared as "IsNullable": false',
    also=("LZ-168",),
)
COMPRESSION = Rule(
    "LZ-209",
    "compression",
    "A text file is compressed in a way that cannot be read",
    ERROR,
    "no compression, Snappy with its framing, GZIP or ZSTD",
    "Compression is told by the leading bytes of a file. This one is damaged, unpacks to far more "
    "than a file may, or is of a kind that has no leading bytes.",
    "Write the file without compression, or with GZIP or ZSTD.",
    "orders/00000000000000000001.csv that is cut in the middle of its GZIP data",
    also=("LZ-173",),
)


def _value(clause: str, kind: str, form: str, example: str, *also: str) -> Rule:
    return Rule(
        clause,
        f"value-not-{kind}",
        f"A text is no value of the type {kind}",
        ERROR,
        form,
        f"The column is declared as `{kind}`: {form}. Nothing of the file is applied.",
        "Write the value in this form, or declare the column as `String` in a table that is loaded "
        "anew.",
        example,
        also=also,
    )


_NUMBER = "a number with . as decimal sign and without group signs"
_WHOLE = "a whole number from {} to {}, without group signs"
VALUES = {
    rule.id: rule
    for rule in (
        _value("LZ-175", "Double", _NUMBER, "1,5", "LZ-208"),
        _value("LZ-176", "Single", _NUMBER, "1,5", "LZ-208"),
        _value("LZ-177", "Int16", _WHOLE.format("-32,768", "32,767"), "40000", "LZ-208"),
        _value("LZ-178", "Int32", _WHOLE.format("-2^31", "2^31-1"), "3000000000", "LZ-208"),
        _value("LZ-179", "Int64", _WHOLE.format("-2^63", "2^63-1"), "1.0", "LZ-208"),
        _value("LZ-181", "IDate", "a date such as 2025-06-17", "17.06.2025"),
        _value(
            "LZ-183",
            "ITime",
            "a time such as 14:30, 14:30:00 or 14:30:00.5, or a full date and time",
            "2 pm",
            "LZ-182",
        ),
        _value("LZ-185", "Boolean", "true, false, 1 or 0 in any case", "yes"),
        _value("LZ-186", "ByteArray", "base64, or hex when it begins with 0x", "not base64!"),
        _value("LZ-187", "Decimal", f"{_NUMBER}, within Precision and Scale", "12345.678"),
        _value(
            "LZ-207",
            "DateTime",
            "yyyy-MM-dd HH:mm:ss with an optional fraction, or ISO with T, Z or an offset",
            "06/17/2025 2 pm",
            "LZ-180",
        ),
    )
}

RULES = (
    UNDESCRIBED, NOT_IN_V1, NO_EXTENSION, UNDECLARED, COMPRESSED_NAME, NO_HEADER, ENCODED,
    UNDECLARED_COLUMN, DECLARED_ABSENT, REQUIRED_ABSENT, FIELDS, HEADER_TWICE, LINE_END, LAST_LINE,
    QUOTES, REQUIRED_NULL, COMPRESSION, *VALUES.values(),
)  # fmt: skip
