"""Notifies the schedules that created jobs when these jobs end, in the same transaction. PURE."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from redrive.engine.origin import Kind, OriginResult
from redrive.engine.outcome import Transition
from redrive.engine.records import Claim
from redrive.stores.operations import crons, transitions
from redrive.stores.operations.refresh import finish
from redrive.stores.query import Steps


def write_all(pairs: Sequence[tuple[Claim, Transition]], at: datetime) -> Steps[dict[int, Transition]]:
    """Write transitions and notify the schedules of their jobs; see `redrive.stores.operations.transitions.write`."""
    done = yield from transitions.write(pairs, at)
    yield from notify(done.values(), at)
    return done


def notify(done: Iterable[Transition], at: datetime) -> Steps[None]:
    """Notify the schedules of the jobs of these transitions; most jobs have none."""
    reports = [each.report for each in done if each.report is not None]
    if reports:
        yield from report(reports, at)


# A caller that ends several jobs reports all of them in one call: their schedules are then locked in one order, and two
# transactions that do so cannot deadlock.
def report(reports: Iterable[OriginResult], at: datetime) -> Steps[None]:
    """Notify schedules of the ends of their jobs, which are written already."""
    by_cron: dict[str, set[int]] = defaultdict(set)
    of_items = []
    for each in reports:
        if each.origin.kind is Kind.CRON:
            by_cron[each.origin.schedule].add(each.job_id)
        else:
            of_items.append(each)
    yield from finish.finish_all(of_items, at)
    if by_cron:
        yield from crons.start_queued(by_cron, at)
