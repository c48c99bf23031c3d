"""The rows of runs that start again. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.engine.runs import StepRecord
from redrive.engine.undoing import AGAIN, Again, again
from redrive.stores.query import Query, Steps


def prepare(ids: Sequence[int], at: datetime) -> Steps[list[int]]:
    """Let runs that start again repeat what ended them, and return the jobs of the child runs that have failed them."""
    rows: Sequence[StepRecord] = yield Query("steps_of", {"ids": list(ids)}, into=StepRecord)
    by_run: dict[int, list[StepRecord]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    children: list[int] = []
    for number, mine in by_run.items():
        changes = again(mine)
        yield from change(number, changes, at)
        children += [row.ref for row in mine if row.path in changes.calls and row.ref is not None]
    yield Query("runs_again", {"ids": list(ids)})
    return children


def change(run_id: int, changes: Again, at: datetime) -> Steps[None]:
    """Write what changes in the rows of a run."""
    if changes.forget:
        yield Query("steps_again", {"run_id": run_id, "paths": list(changes.forget)})
    if changes.renew or changes.calls:
        error = msgspec.json.encode(AGAIN).decode()
        paths = [*changes.renew, *changes.calls]
        yield Query("steps_renew", {"run_id": run_id, "paths": paths, "now": at, "error": error})
    if changes.loosen:
        yield Query("steps_loosen", {"run_id": run_id, "paths": list(changes.loosen)})
