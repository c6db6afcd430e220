"""A small Azure Data Lake Storage: what its client asks for, with the service's own semantics.

`tree.py` is one container in memory, `server.py` speaks HTTP for any number of them and breaks on
demand. Codes and bodies of errors are those of the REST reference.
"""

from tests.doubles.dfs.server import DataLake, Fault, Seen

__all__ = ["DataLake", "Fault", "Seen"]
