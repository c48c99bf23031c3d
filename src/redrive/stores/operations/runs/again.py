"""The rows of runs that start again. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.engine.runs import StepRecord
from redrive.engine.undoing import AGAIN, Again, again, supplied
from redrive.stores.query import Query, Statements


def prepare(ids: Sequence[int], at: datetime) -> Statements[None]:
    """Let runs that start again repeat what ended them."""
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": list(ids)}, into=StepRecord)
    by_run: dict[int, list[StepRecord]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    for number, mine in by_run.items():
        yield from change(number, again(mine), at)
    yield Query("runs_again", {"ids": list(ids)})


def supply(run_id: int, path: str, at: datetime) -> Statements[None]:
    """Let the branches that were dropped for the failure of a step go on, because it was given a value."""
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": [run_id]}, into=StepRecord)
    yield from change(run_id, supplied(rows, path), at)


def change(run_id: int, changes: Again, at: datetime) -> Statements[None]:
    """Write what changes in the rows of a run."""
    if changes.forget or changes.renew:
        yield Query("signals_again", {"run_id": run_id, "paths": [*changes.forget, *changes.renew]})
    if changes.forget:
        yield Query("steps_again", {"run_id": run_id, "paths": list(changes.forget)})
    if changes.renew:
        error = msgspec.json.encode(AGAIN).decode()
        yield Query("steps_renew", {"run_id": run_id, "paths": list(changes.renew), "now": at, "error": error})
    if changes.loosen:
        yield Query("steps_loosen", {"run_id": run_id, "paths": list(changes.loosen)})
