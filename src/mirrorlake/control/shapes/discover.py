"""What to discover, and how deep (ST-309, ST-311)."""

from __future__ import annotations

from mirrorlake.control.shapes import hierarchies as shape
from mirrorlake.control.shapes.base import Count, Shape, Text
from mirrorlake.control.shapes.profiles import ConnectionProfile

DATA_OBJECTS = (
    "postgresql_rdbms",
    "mysql_rdbms",
    "oracle_rdbms",
    "sql_server_rdbms",
    "salesforce_org",
    "mongodb_cluster",
)


class DiscoverRequest(Shape):
    """A data object limits the discovery; v1alpha1 has other names for the depth."""

    one_of = (
        ("connection_profile", "connection_profile_name"),
        ("full_hierarchy", "hierarchy_depth", "recursive", "recursion_depth"),
        DATA_OBJECTS,
    )
    connection_profile: ConnectionProfile | None = None
    connection_profile_name: Text | None = None
    full_hierarchy: bool | None = None
    hierarchy_depth: Count | None = None
    recursive: bool | None = None
    recursion_depth: Count | None = None
    postgresql_rdbms: shape.PostgresqlRdbms | None = None
    mysql_rdbms: shape.MysqlRdbms | None = None
    oracle_rdbms: shape.OracleRdbms | None = None
    sql_server_rdbms: shape.SqlServerRdbms | None = None
    salesforce_org: shape.SalesforceOrg | None = None
    mongodb_cluster: shape.MongodbCluster | None = None
