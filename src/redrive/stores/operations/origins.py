"""Reports the ends of jobs to their origins, and writes the effects of their attempts, in the same transaction. PURE.

Each kind of origin has one operation that receives its reports; each kind of effect has one that writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from redrive.engine.origin import Effect, Kind, OriginResult
from redrive.engine.outcome import Settlement
from redrive.engine.records import Claim, Enqueue
from redrive.engine.topics import Publish
from redrive.stores.operations import batches, crons, events, jobs, settlements
from redrive.stores.operations.machines import finish as transition_ends
from redrive.stores.operations.refresh import finish
from redrive.stores.operations.refresh.items import ItemMove
from redrive.stores.operations.runs import waits
from redrive.stores.query import Statements

Receiver: TypeAlias = Callable[[Sequence[OriginResult], datetime], Statements[Any]]

# In the order in which their rows are locked; see the lock order in docs/reference/invariants.md.
_RECEIVERS: Final[Mapping[Kind, Receiver]] = {
    Kind.REFRESH: finish.finish_all,
    Kind.MACHINE: transition_ends.finish_all,
    Kind.RUN: waits.child_ended,
    Kind.CRON: crons.finish_all,
    Kind.TOPIC: events.finish_all,
    Kind.BATCH: batches.finish_all,
}

# The effects that any job can have. Those of a kind of origin, such as the next event of a machine, reach its operation
# with the report.
_WRITERS: Final[Mapping[type[Effect], Callable[[Sequence[Any], datetime], Statements[Any]]]] = {
    Publish: events.write_all,
    Enqueue: jobs.write_all,
}


def write_all(pairs: Sequence[tuple[Claim, Settlement]], at: datetime) -> Statements[dict[int, Settlement]]:
    """Write settlements and report the ends of jobs; see `redrive.stores.operations.settlements.write`."""
    done = yield from settlements.write(pairs, at)
    return (yield from notify(done, at))


def notify(done: dict[int, Settlement], at: datetime) -> Statements[dict[int, Settlement]]:
    """Report the ends of the jobs of these settlements, and write their effects; most jobs have neither.

    Return the settlements, those of failed attempts at refreshes with what follows.
    """
    reports: list[OriginResult] = []
    effects: list[Effect] = []
    moved: Mapping[int, ItemMove] = {}
    for each in done.values():
        if each.report is not None:
            reports.append(each.report)
        if each.effects:
            effects.extend(each.effects)
    if reports:
        moved = yield from report(reports, at)
    if effects:
        yield from write_effects(effects, at)
    return done if not moved else {lease: _followed(each, moved.get(each.job_id)) for lease, each in done.items()}


def _followed(ended: Settlement, moved: ItemMove | None) -> Settlement:
    return ended if moved is None else replace(ended, next_refresh=finish.next_refresh(moved))


# A caller that ends several jobs reports all of them in one call: their origins are then locked in one order, and two
# transactions that do so cannot deadlock.
def report(reports: Iterable[OriginResult], at: datetime) -> Statements[Mapping[int, ItemMove]]:
    """Report the ends of jobs, which are written already; return the moves of items of refreshes by jobs."""
    moved: Mapping[int, ItemMove] = {}
    by_kind: dict[Kind, list[OriginResult]] = defaultdict(list)
    for each in reports:
        by_kind[each.origin.kind].append(each)
    for kind, receive in _RECEIVERS.items():
        if kind in by_kind:
            found = yield from receive(by_kind[kind], at)
            moved = found if kind is Kind.REFRESH else moved
    return moved


def write_effects(effects: Iterable[Effect], at: datetime) -> Statements[None]:
    """Write the effects of successful attempts."""
    by_type: dict[type[Effect], list[Effect]] = defaultdict(list)
    for each in effects:
        by_type[type(each)].append(each)
    for kind, write in _WRITERS.items():
        if kind in by_type:
            yield from write(by_type[kind], at)
