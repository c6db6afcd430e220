"""Pytest plugin: all temporary files of a run lie where pytest's own do, in memory under `make`.

To make a database on a disk takes a fifth of a second of a processor, and a run makes hundreds.
"""

from __future__ import annotations

import os
import tempfile

_ROOT = os.environ.get("PYTEST_DEBUG_TEMPROOT")

# The embedded PostgreSQL is copied to such a folder, and started there, where its user may not
# enter the one that it is installed in.
if _ROOT and not os.statvfs(_ROOT).f_flag & os.ST_NOEXEC:
    os.environ["TMPDIR"] = _ROOT
    tempfile.tempdir = None  # is asked for again
