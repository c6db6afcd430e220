"""Locks for which an autovacuum may be in the way.

PostgreSQL ends it for who has waited for `deadlock_timeout` (1 s), which has to be shorter than our
wait for a lock. Only superusers, and those to whom it was granted, may set that.
"""

from __future__ import annotations

from mirrorlake.sources.postgresql.connect import Connection

_MAY_SET = "has_parameter_privilege('deadlock_timeout', 'set')"
_IS_SUPERUSER = "current_setting('is_superuser') = 'on'"  # before PostgreSQL 15

_LET_END = """
select case when {may_set} then set_config('deadlock_timeout', '500ms', true)
            when setting::int <= 1000 then set_config('lock_timeout', '1010ms', true) end
from pg_settings where name = 'deadlock_timeout' and setting::int > 900
"""


def let_end(connection: Connection) -> None:
    """Until the end of the transaction, let PostgreSQL end an autovacuum that is in the way."""
    may_set = _MAY_SET if connection.info.server_version >= 150_000 else _IS_SUPERUSER
    connection.execute(_LET_END.format(may_set=may_set).encode())
