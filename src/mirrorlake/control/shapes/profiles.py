"""Connection profiles of every kind (ST-314 to ST-325)."""

from __future__ import annotations

from pydantic import Field

from mirrorlake.control.shapes.base import Empty, Labels, Port, Secret, Shape, Text, Time


class SslConfig(Shape):
    """For MySQL and MongoDB. Only the `*_set` fields show which secrets are set (ST-324)."""

    client_key: Secret | None = None
    client_key_set: bool | None = None
    client_certificate: Secret | None = None
    client_certificate_set: bool | None = None
    ca_certificate: Secret | None = None
    ca_certificate_set: bool | None = None
    secret_manager_stored_client_key: Text | None = None


class OracleSslConfig(Shape):
    ca_certificate: Secret | None = None
    ca_certificate_set: bool | None = None
    server_certificate_distinguished_name: Text | None = None


class SqlServerVerification(Shape):
    ca_certificate: Secret | None = None
    server_certificate_hostname: Text | None = None


class SqlServerSslConfig(Shape):
    one_of = (("encryption_not_enforced", "basic_encryption", "encryption_and_server_validation"),)
    encryption_not_enforced: Empty | None = None
    basic_encryption: Empty | None = None
    encryption_and_server_validation: SqlServerVerification | None = None


class ServerVerification(Shape):
    ca_certificate: Secret | None = None
    server_certificate_hostname: Text | None = None


class ServerAndClientVerification(Shape):
    client_certificate: Secret | None = None
    client_key: Secret | None = None
    ca_certificate: Secret | None = None
    server_certificate_hostname: Text | None = None


class PostgresqlSslConfig(Shape):
    one_of = (("server_verification", "server_and_client_verification"),)
    server_verification: ServerVerification | None = None
    server_and_client_verification: ServerAndClientVerification | None = None


class OracleAsmConfig(Shape):
    hostname: Text = ""
    port: Port = 1521
    username: Text = ""
    password: Secret | None = None
    asm_service: Text = ""
    connection_attributes: dict[Text, Text] = Field(default_factory=dict)
    oracle_ssl_config: OracleSslConfig | None = None
    secret_manager_stored_password: Text | None = None


class OracleProfile(Shape):
    hostname: Text = Field(min_length=1)
    port: Port = 1521
    username: Text = Field(min_length=1)
    password: Secret | None = None
    database_service: Text = Field(min_length=1)
    connection_attributes: dict[Text, Text] = Field(default_factory=dict)
    oracle_ssl_config: OracleSslConfig | None = None
    oracle_asm_config: OracleAsmConfig | None = None
    secret_manager_stored_password: Text | None = None


class MysqlProfile(Shape):
    hostname: Text = Field(min_length=1)
    port: Port = 3306
    username: Text = Field(min_length=1)
    password: Secret | None = None
    ssl_config: SslConfig | None = None
    secret_manager_stored_password: Text | None = None


class PostgresqlProfile(Shape):
    hostname: Text = Field(min_length=1)
    port: Port = 5432
    username: Text = Field(min_length=1)
    password: Secret | None = None
    database: Text = Field(min_length=1)
    ssl_config: PostgresqlSslConfig | None = None
    secret_manager_stored_password: Text | None = None


class SqlServerProfile(Shape):
    hostname: Text = Field(min_length=1)
    port: Port = 1433
    username: Text = Field(min_length=1)
    password: Secret | None = None
    database: Text = Field(min_length=1)
    ssl_config: SqlServerSslConfig | None = None
    secret_manager_stored_password: Text | None = None


class UserCredentials(Shape):
    username: Text = Field(min_length=1)
    password: Secret | None = None
    security_token: Secret | None = None
    secret_manager_stored_password: Text | None = None
    secret_manager_stored_security_token: Text | None = None


class Oauth2ClientCredentials(Shape):
    client_id: Text = Field(min_length=1)
    client_secret: Secret | None = None
    secret_manager_stored_client_secret: Text | None = None


class SalesforceProfile(Shape):
    one_of = (("user_credentials", "oauth2_client_credentials"),)
    domain: Text = Field(min_length=1)
    user_credentials: UserCredentials | None = None
    oauth2_client_credentials: Oauth2ClientCredentials | None = None


class HostAddress(Shape):
    hostname: Text = Field(min_length=1)
    port: Port = 27017


class StandardConnectionFormat(Shape):
    direct_connection: bool = False


class MongodbProfile(Shape):
    one_of = (("srv_connection_format", "standard_connection_format"),)
    host_addresses: list[HostAddress] = Field(min_length=1, max_length=100)
    replica_set: Text | None = None
    username: Text = Field(min_length=1)
    password: Secret | None = None
    secret_manager_stored_password: Text | None = None
    ssl_config: SslConfig | None = None
    srv_connection_format: Empty | None = None
    standard_connection_format: StandardConnectionFormat | None = None
    additional_options: dict[Text, Text] = Field(default_factory=dict)


class GcsProfile(Shape):
    bucket: Text = Field(min_length=1)
    root_path: Text = ""


class FileSystemProfile(Shape):
    """A folder below the data folder of the service (ST-325)."""

    root_path: Text = ""


class ForwardSshConnectivity(Shape):
    one_of = (("password", "private_key"),)
    hostname: Text = Field(min_length=1)
    username: Text = Field(min_length=1)
    port: Port = 22
    password: Secret | None = None
    private_key: Secret | None = None


class PrivateConnectivity(Shape):
    private_connection: Text = Field(min_length=1)


SOURCES = (
    "postgresql_profile",
    "mysql_profile",
    "oracle_profile",
    "sql_server_profile",
    "salesforce_profile",
    "mongodb_profile",
)
DESTINATIONS = ("gcs_profile", "bigquery_profile", "file_system_profile")
CONNECTIVITIES = (
    "static_service_ip_connectivity",
    "forward_ssh_connectivity",
    "private_connectivity",
)


class ConnectionProfile(Shape):
    """How to connect to a source or a destination (ST-314)."""

    one_of = ((*SOURCES, *DESTINATIONS), CONNECTIVITIES)
    name: Text | None = None
    display_name: Text = ""
    labels: Labels = Field(default_factory=dict)
    create_time: Time | None = None
    update_time: Time | None = None
    satisfies_pzs: bool | None = None
    satisfies_pzi: bool | None = None
    postgresql_profile: PostgresqlProfile | None = None
    mysql_profile: MysqlProfile | None = None
    oracle_profile: OracleProfile | None = None
    sql_server_profile: SqlServerProfile | None = None
    salesforce_profile: SalesforceProfile | None = None
    mongodb_profile: MongodbProfile | None = None
    gcs_profile: GcsProfile | None = None
    bigquery_profile: Empty | None = None
    file_system_profile: FileSystemProfile | None = None
    static_service_ip_connectivity: Empty | None = None
    forward_ssh_connectivity: ForwardSshConnectivity | None = None
    private_connectivity: PrivateConnectivity | None = None

    @property
    def kind(self) -> str | None:
        """The profile field that is set, for example `postgresql_profile`."""
        return next(
            (name for name in (*SOURCES, *DESTINATIONS) if getattr(self, name) is not None), None
        )
