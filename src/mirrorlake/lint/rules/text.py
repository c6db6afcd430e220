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
    "The format of text cannot be guessed: the folder is not read before the file exists, "
    "whatever `metadata_required` says.",
    "Write it, with `keyColumns`, `FileExtension` and `FileFormatTypeProperties`.",
    "orders/00000000000000000001.csv",
    also=("LZ-029",),
)
NOT_IN_V1 = Rule(
    "LZ-143",
    "text-in-v1",
    "There is a text file, but the v1 page allows only Parquet",
    ERROR,
    "Parquet",
    "On the v1 page Parquet is the only format. Delimited text was added by the v2 page.",
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
    "The v2 page requires the member for delimited text. Our engine uses `csv` without it, "
    "because widely used publishers omit it.",
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
    "Declare the columns, unless readers want text.",
    '{"keyColumns": ["id"], "FileExtension": "csv"}',
    only=Version.V2,
    also=("LZ-174", "LZ-334"),
)
COMPRESSED_NAME = Rule(
    "LZ-209",
    "compressed-extension",
    "A text file has a compression extension",
    None,
    "only the declared extension",
    "Compression is detected by the first bytes of a file. Our engine also accepts `.csv.gz` and "
    "`.csv.zst`; the pages define only the declared extension.",
    "Use only the declared extension.",
    "orders/00000000000000000001.csv.gz",
    strict=WARNING,
)

NO_HEADER = Rule(
    "LZ-159",
    "header-absent",
    "A text file has no header",
    ERROR,
    "the column names in the first row",
    "Columns are matched to the header by name. A file without text has no header, and neither "
    "has a file whose first row contains none of the declared columns. A file with only a header "
    "is valid, and creates the table.",
    "Write the header in the first row of every file, even if no rows follow.",
    "orders/00000000000000000001.csv that contains only a line break",
    also=("LZ-198",),
)
ENCODED = Rule(
    "LZ-167",
    "bytes-not-of-encoding",
    "A text file is not in the declared encoding",
    ERROR,
    "text in the Encoding of _metadata.json, UTF-8 without one",
    "Bytes that are not valid in the encoding would become other characters; none of the file is "
    "applied.",
    "Write the file in the declared encoding, or declare its actual encoding.",
    "the byte 0xE4 (ä in windows-1252) in a file that is declared as UTF-8",
)
UNDECLARED_COLUMN = Rule(
    "LZ-193",
    "column-not-declared",
    "A text file has a column that SchemaDefinition does not declare",
    WARNING,
    "the declared columns, and the marker",
    "With a declared schema, such a column is ignored: its values are not stored.",
    "Declare the column in `SchemaDefinition`, or remove it from the file.",
    "id,name,seqNum",
    also=("LZ-168", "LZ-344"),
)
DECLARED_ABSENT = Rule(
    "LZ-195",
    "declared-column-absent",
    "A text file does not have a column that SchemaDefinition declares",
    NOTE,
    "every declared column in every file",
    "A declared column that is missing from the file is NULL in all of its rows.",
    "Write the column, with empty fields for missing values.",
    "id",
)
REQUIRED_ABSENT = Rule(
    "LZ-195",
    "required-column-absent",
    "A text file does not have a column that may not be NULL",
    ERROR,
    "every column that is declared as not nullable",
    "A declared column that is missing from the file is NULL, and this one may not be. Only rows "
    "that delete may contain just the key.",
    "Write the column, or declare it nullable.",
    'id, while name is declared with "IsNullable": false',
)
FIELDS = Rule(
    "LZ-199",
    "field-count",
    "A row does not have as many fields as the header",
    ERROR,
    "the same number of fields in every row as in the header",
    "The fields cannot be assigned to columns. The usual cause is a separator in a value that is "
    "not quoted.",
    "Quote values that contain the separator, a quote or a line break.",
    "id,name\n1,Smith, Anna",
)
HEADER_TWICE = Rule(
    "LZ-199",
    "header-name-twice",
    "A name occurs twice in the header",
    ERROR,
    "a different name for every column",
    "Columns are matched to the header by name, and two have this name.",
    "Rename one of them.",
    "id,name,name",
)
LINE_END = Rule(
    "LZ-200",
    "line-end",
    "Rows end with another line ending than the declared one",
    NOTE,
    "rows that end with \\r\\n",
    "If `\\r\\n` is declared, or no separator is, our engine also accepts a bare `\\n`, "
    "because published files contain it. A strict reader rejects it.",
    "Declare the `RowSeparator` that the files use.",
    "RowSeparator \\r\\n, and rows that end with \\n",
    strict=ERROR,
    also=("LZ-162", "LZ-336"),
)
LAST_LINE = Rule(
    "LZ-200",
    "last-line-end",
    "The last row has no line ending",
    None,
    "a line ending after the last row",
    "Our engine does not need it; a strict reader treats the file as truncated.",
    "End every row with the row separator.",
    "id,name\n1,Anna",
    strict=ERROR,
    also=("LZ-336",),
)
QUOTES = Rule(
    "LZ-201",
    "quotes",
    "A closing quote is missing or not at the end of its field",
    ERROR,
    "quotes around whole values, with quotes inside them doubled or escaped",
    "Inside quotes the escape character makes a following quote or escape character literal, and "
    "a doubled quote is one literal quote. If anything else follows a closing quote, or there is "
    "none, the end of the field is not defined.",
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
    "A column with `IsNullable` false cannot be NULL, and neither can a key column unless it is "
    "declared nullable. Only non-key columns of rows that delete may be empty.",
    "Write a value, or declare the column nullable. Note that a field equal to `NullValue` is "
    "NULL.",
    'id,name\n1,\nwith name declared as "IsNullable": false',
    also=("LZ-168",),
)
COMPRESSION = Rule(
    "LZ-209",
    "compression",
    "A text file is compressed in a way that cannot be read",
    ERROR,
    "no compression, Snappy with its framing, GZIP or ZSTD",
    "Compression is detected by the first bytes of a file. This one is damaged, decompresses to "
    "far more than the allowed size, or uses a format without such bytes.",
    "Write the file without compression, or with GZIP or ZSTD.",
    "orders/00000000000000000001.csv that is cut in the middle of its GZIP data",
    also=("LZ-173",),
)


def _value(clause: str, kind: str, form: str, example: str, *also: str) -> Rule:
    return Rule(
        clause,
        f"value-not-{kind}",
        f"A text is not a value of type {kind}",
        ERROR,
        form,
        f"The column is declared as `{kind}`: {form}. None of the file is applied.",
        "Write the value in this form, or declare the column as `String` and load the table again.",
        example,
        also=also,
    )


_NUMBER = "a number with . as decimal separator and without group separators"
_WHOLE = "a whole number from {} to {}, without group separators"
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
