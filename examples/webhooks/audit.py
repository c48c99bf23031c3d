"""The proof that no event was lost: the database compared with what the receiver and the catch task have written.

::

    python audit.py [ledger.jsonl [dead-letters.jsonl]]

An event is delivered only if its job succeeded and the receiver's ledger has a 2xx under its idempotency key. It is
caught only if its catch task succeeded and the dead-letter file has it; ``gone`` if the ledger also has a 410. A job
that can still run is unfinished. Every other event is lost, and then the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from delivery import DeadLetter, app, deliver, read_dead_letters, to_dead_letters
from ledger import Entry, read_ledger

from redrive import Filter
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord

EventFate = Enum("EventFate", "DELIVERED CAUGHT GONE UNFINISHED LOST")
ALL = 2**62  # no limit


class Delivery(NamedTuple):
    """A delivery in the database: its job, its key, the keys of its catch jobs, and whether one of them is open."""

    job: JobRecord
    key: str
    letters: frozenset[str] = frozenset()
    catching: bool = False

    @property
    def is_open(self) -> bool:
        """True if the job or its catch job can still run."""
        return self.job.state not in FINAL or self.catching


class EventVerdict(NamedTuple):
    """The verdict on one delivery; for a lost event, ``why`` is what is missing."""

    job_id: int
    fate: EventFate
    attempts: int
    why: str = ""


class Result(NamedTuple):
    """All verdicts with their entries of the ledger; perhaps a worker that was killed, and the jobs that it held."""

    verdicts: Sequence[EventVerdict] = ()
    requests: Sequence[Entry] = ()
    killed: str = ""
    held: frozenset[int] = frozenset()

    def count(self, *fates: EventFate) -> int:
        """Count the events with one of these fates."""
        return sum(each.fate in fates for each in self.verdicts)

    @property
    def unfinished(self) -> int:
        """The number of events that can still be delivered."""
        return self.count(EventFate.UNFINISHED)

    @property
    def accepted_twice(self) -> int:
        """The number of events that the receiver accepted again; anything but 0 is a defect of the receiver."""
        accepted = [each.key for each in self.requests if each.accepted]
        return len(accepted) - len(set(accepted))

    @property
    def is_proof(self) -> bool:
        """True if no event is lost and none was accepted twice."""
        return not (self.count(EventFate.LOST) or self.accepted_twice)


def deliveries() -> Iterator[Delivery]:
    """Read all deliveries from the database."""
    catches = defaultdict(list)
    for job in app.jobs.select(Filter(task=to_dead_letters.name, limit=ALL)):
        catches[job.parent_id].append(job)
    for job in app.jobs.select(Filter(task=deliver.name, limit=ALL)):
        keys = frozenset(app.jobs.idempotency_key(each.id) for each in catches[job.id])
        catching = any(each.state not in FINAL for each in catches[job.id])
        yield Delivery(job, app.jobs.idempotency_key(job.id), keys, catching)


def audit(
    cases: Sequence[Delivery], ledger: Sequence[Entry], letters: Sequence[DeadLetter]
) -> tuple[list[EventVerdict], list[Entry]]:
    """Compare deliveries with the ledger and the dead letters. Return the verdicts, and their entries of the ledger."""
    answered = {case.key: set() for case in cases}
    own = [entry for entry in ledger if entry.key in answered]
    for entry in own:
        answered[entry.key].add(entry.status)
    written = {letter.key for letter in letters}
    return [_judge(case, answered[case.key], written) for case in cases], own


def _judge(case: Delivery, answered: set[int | None], written: set[str]) -> EventVerdict:
    job, fate, why = case.job, EventFate.LOST, ""
    if job.state is State.SUCCEEDED:
        confirmed = any(status is not None and 200 <= status < 300 for status in answered)
        fate, why = (EventFate.DELIVERED, "") if confirmed else (fate, "the receiver never answered 2xx under its key")
    elif job.caught_at is not None and not case.letters & written:
        why = "it is not in the dead-letter file"
    elif job.caught_at is not None:
        fate = EventFate.GONE if 410 in answered else EventFate.CAUGHT
    elif case.is_open:
        fate = EventFate.UNFINISHED
    else:
        why = f"it is {job.state} and was never caught"
    return EventVerdict(job.id, fate, job.attempt, why)


def rows(run: Result) -> list[tuple[str, int, str]]:
    """Return the rows of the table: subject, number, source. Rows that matter only above 0 are left out at 0."""
    delivered = run.count(EventFate.DELIVERED)
    retried = sum(each.fate is EventFate.DELIVERED and each.attempts > 1 for each in run.verdicts)
    again = sum(v.job_id in run.held and v.fate not in {EventFate.LOST, EventFate.UNFINISHED} for v in run.verdicts)
    table = [
        ("events in", len(run.verdicts), ""),
        ("delivered", delivered, "database: succeeded; ledger: 2xx"),
        ("  at the first attempt", delivered - retried, ""),
        ("  after retries", retried, ""),
        ("caught", run.count(EventFate.CAUGHT, EventFate.GONE), "database; dead-letter file"),
        ("  gone (410), no retry", run.count(EventFate.GONE), "ledger: 410"),
        ("  retries exhausted", run.count(EventFate.CAUGHT), ""),
        ("lost", run.count(EventFate.LOST), ""),
        ("requests to the receiver", len(run.requests), ""),
        ("  repeats under the same key", sum(each.request > 1 for each in run.requests), ""),
        ("  of accepted events", sum(each.duplicate for each in run.requests), "known by key, not accepted again"),
    ]
    rerun = "all" if again == len(run.held) else again
    extra = [
        ("still queued", run.unfinished, "for the next run on this database"),
        ("accepted twice", run.accepted_twice, "a defect of the receiver"),
        (f"held by {run.killed} when killed", len(run.held), f"{rerun} ran again elsewhere"),
    ]
    return table + [row for row in extra if row[1]]


def report(run: Result) -> Iterator[str]:
    """Yield the lines of the report: the table, at most five of the lost events, and the result in one sentence."""
    table = rows(run)
    width = max(len(name) for name, _, _ in table)
    for name, number, source in table:
        yield f"{name:<{width}}  {number:>6}  {source}".rstrip()
    lost = [each for each in run.verdicts if each.fate is EventFate.LOST]
    yield from (f"lost: job {each.job_id}: {each.why}" for each in lost[:5])
    numbers = {name.strip(): number for name, number, _ in table}
    queued = f", {run.unfinished} still queued" if run.unfinished else ""
    yield (
        f"{numbers['events in']} events in: {numbers['delivered']} delivered, {numbers['after retries']} of them after "
        f"retries, {numbers['caught']} caught, {numbers['lost']} lost{queued}; the receiver recognised "
        f"{numbers['repeats under the same key']} repeats by their idempotency key."
    )


def main() -> None:
    """Print the report on the whole database."""
    parser = argparse.ArgumentParser(description="Compare the database with the ledger and the dead letters.")
    parser.add_argument("ledger", type=Path, nargs="?", default="ledger.jsonl")
    parser.add_argument("letters", type=Path, nargs="?", default="dead-letters.jsonl")
    options = parser.parse_args()
    with contextlib.closing(app):
        result = Result(*audit(list(deliveries()), read_ledger(options.ledger), read_dead_letters(options.letters)))
    print(*report(result), sep="\n")
    sys.exit(0 if result.is_proof else 1)


if __name__ == "__main__":
    main()
