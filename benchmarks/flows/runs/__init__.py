"""The measured workflow engines: one file per subject, each behind `benchmarks.subjects.Subject`.

A job of a subject is one run of a workflow with five steps that do nothing. The argument of the run is a number: with
0.0 the body calls `Meter.mark` once, at its start; otherwise once after each step, with the instant at which the body
asked for the step.

To add a peer, write its file and name it in `SUBJECTS` under the store that it uses.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.subjects import Subject

__all__ = ["COUNTS", "STEPS", "SUBJECTS", "subject"]

STEPS = 5
"""Steps per run."""

SUBJECTS = {
    "sqlite": {
        "raw sqlite3": "raw_sqlite:RawRunsOnSQLite",
        "redrive": "redrive:RedriveRunsOnSQLite",
        "dbos": "dbos:DBOSRunsOnSQLite",
    },
    "postgres": {
        "raw asyncpg": "raw_postgres:RawRunsOnPostgres",
        "redrive": "redrive:RedriveRunsOnPostgres",
        "absurd": "absurd:AbsurdRuns",
        "pgqrs": "pgqrs:PgQRSRuns",
        "dbos": "dbos:DBOSRunsOnPostgres",
    },
}
"""The subjects by store and name, the limit first."""

COUNTS = {"raw sqlite3": 10_000, "raw asyncpg": 10_000, "redrive": 3_000, "absurd": 600, "pgqrs": 300, "dbos": 300}
"""The runs that a subject drains: work for some seconds each, because their speeds differ by two orders of size."""


def subject(store: str, name: str) -> Subject:
    """Make a subject. Only here is its module loaded, which may need packages that only its interpreter has.

    Args:
        store: a key of `SUBJECTS`.
        name: a key of that.

    Returns:
        The subject.
    """
    module, _, kind = SUBJECTS[store][name].partition(":")
    made: Subject = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made
