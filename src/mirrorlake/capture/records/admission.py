"""Which tables take part where the project ignores tables that are created later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrorlake.capture.records.files import RecordFiles
from mirrorlake.capture.records.names import ADMITTED
from mirrorlake.model.crash_points import CrashPoint


@dataclass(frozen=True, slots=True)
class Admission:
    """`admitted.json`. tables: those that take part, by name; left_out: tables that were created
    later, and when each was seen first."""

    tables: frozenset[str]
    left_out: Mapping[str, str]

    def with_tables(self, names: Collection[str]) -> Admission:
        left_out = {name: at for name, at in self.left_out.items() if name not in names}
        return Admission(self.tables | {*names}, left_out)


class AdmissionRecords(RecordFiles):
    """`admitted.json`."""

    __slots__ = ()

    def admission(self) -> Admission | None:
        """Which tables take part; None where the project ignores none."""
        found = self._read(ADMITTED)
        if not found:
            return None
        tables = self._printed(dict.fromkeys(found["tables"]))
        return Admission(frozenset(tables), self._printed(found["left_out"]))

    def write_admission(self, admission: Admission) -> None:
        left_out = dict(sorted(admission.left_out.items()))
        self._write(ADMITTED, {"tables": sorted(admission.tables), "left_out": left_out})
        self.reached(CrashPoint.ADMITTED_RECORDED)

    def admit(self, names: Collection[str]) -> None:
        """Let tables take part, whenever they were created."""
        if (found := self.admission()) is not None:
            self.write_admission(found.with_tables(names))

    def end_admission(self) -> None:
        """Let all tables take part."""
        self.store.delete(f"{self.folder}/{ADMITTED}")
