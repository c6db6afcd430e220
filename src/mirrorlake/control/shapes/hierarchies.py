"""The structure of a source: returned by discover, and used in include lists (ST-311, ST-312)."""

from __future__ import annotations

from pydantic import Field

from mirrorlake.control.shapes.base import Count, Name, Shape, Text


class OracleColumn(Shape):
    column: Text = ""
    data_type: Text | None = None
    length: Count | None = None
    precision: Count | None = None
    scale: int | None = None
    encoding: Text | None = None
    primary_key: bool | None = None
    nullable: bool | None = None
    ordinal_position: Count | None = None


class OracleTable(Shape):
    table: Text = ""
    oracle_columns: list[OracleColumn] = Field(default_factory=list)


class OracleSchema(Shape):
    schema_: Text = ""
    oracle_tables: list[OracleTable] = Field(default_factory=list)


class OracleRdbms(Shape):
    oracle_schemas: list[OracleSchema] = Field(default_factory=list)


class MysqlColumn(Shape):
    column: Text = ""
    data_type: Text | None = None
    length: Count | None = None
    collation: Text | None = None
    primary_key: bool | None = None
    nullable: bool | None = None
    ordinal_position: Count | None = None
    precision: Count | None = None
    scale: int | None = None


class MysqlTable(Shape):
    table: Text = ""
    mysql_columns: list[MysqlColumn] = Field(default_factory=list)


class MysqlDatabase(Shape):
    database: Text = ""
    mysql_tables: list[MysqlTable] = Field(default_factory=list)


class MysqlRdbms(Shape):
    mysql_databases: list[MysqlDatabase] = Field(default_factory=list)


class PostgresqlColumn(Shape):
    """length and precision are absent if the type has none."""

    column: Text = ""
    data_type: Text | None = None
    length: Count | None = None
    precision: Count | None = None
    scale: int | None = None
    primary_key: bool | None = None
    nullable: bool | None = None
    ordinal_position: Count | None = None


class PostgresqlTable(Shape):
    table: Text = ""
    postgresql_columns: list[PostgresqlColumn] = Field(default_factory=list)


class PostgresqlSchema(Shape):
    schema_: Text = ""
    postgresql_tables: list[PostgresqlTable] = Field(default_factory=list)


class PostgresqlRdbms(Shape):
    postgresql_schemas: list[PostgresqlSchema] = Field(default_factory=list)


class SqlServerTable(Shape):
    table: Text = ""
    columns: list[PostgresqlColumn] = Field(default_factory=list)


class SqlServerSchema(Shape):
    schema_: Text = ""
    tables: list[SqlServerTable] = Field(default_factory=list)


class SqlServerRdbms(Shape):
    schemas: list[SqlServerSchema] = Field(default_factory=list)


class SalesforceField(Shape):
    name: Text = ""
    data_type: Text | None = None
    nillable: bool | None = None


class SalesforceObject(Shape):
    object_name: Text = ""
    fields_: list[SalesforceField] = Field(default_factory=list)


class SalesforceOrg(Shape):
    objects: list[SalesforceObject] = Field(default_factory=list)


class MongodbField(Shape):
    field: Text = ""


class MongodbCollection(Shape):
    collection: Text = ""
    fields_: list[MongodbField] = Field(default_factory=list)


class MongodbDatabase(Shape):
    database: Text = ""
    collections: list[MongodbCollection] = Field(default_factory=list)


class MongodbCluster(Shape):
    databases: list[MongodbDatabase] = Field(default_factory=list)


class SchemaTableIdentifier(Shape):
    schema_: Name = ""
    table: Name = Field(min_length=1)


class MysqlIdentifier(Shape):
    database: Name = ""
    table: Name = Field(min_length=1)


class SalesforceIdentifier(Shape):
    object_name: Name = Field(min_length=1)


class MongodbIdentifier(Shape):
    database: Name = ""
    collection: Name = Field(min_length=1)


class SourceObjectIdentifier(Shape):
    """Identifies an object of the source (ST-283)."""

    one_of = (
        (
            "postgresql_identifier",
            "oracle_identifier",
            "sql_server_identifier",
            "mysql_identifier",
            "salesforce_identifier",
            "mongodb_identifier",
        ),
    )
    postgresql_identifier: SchemaTableIdentifier | None = None
    oracle_identifier: SchemaTableIdentifier | None = None
    sql_server_identifier: SchemaTableIdentifier | None = None
    mysql_identifier: MysqlIdentifier | None = None
    salesforce_identifier: SalesforceIdentifier | None = None
    mongodb_identifier: MongodbIdentifier | None = None


class LookupRequest(Shape):
    source_object_identifier: SourceObjectIdentifier
