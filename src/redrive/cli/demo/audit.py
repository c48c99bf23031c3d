"""The verdict of the demo: the database compared with what the receiver and the catch task have written. PURE.

An event is delivered only if its job succeeded and the receiver's ledger has a 2xx under its idempotency key. It is
caught only if its catch task succeeded and the dead-letter file has it; ``gone`` if the ledger also has a 410. A job
that can still run is unfinished, which only an interrupted run may leave. Every other event is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord

T = TypeVar("T")
EventFate = Enum("EventFate", "DELIVERED CAUGHT GONE UNFINISHED LOST")


class LedgerLine(msgspec.Struct, frozen=True):
    """A line of the receiver's ledger: the request so many under this key, and whether the event was accepted now."""

    key: str
    request: int
    status: int | None
    accepted: bool
    duplicate: bool


class DeadLetter(msgspec.Struct, frozen=True):
    """A line of the dead-letter file: the idempotency key of the catch job that wrote it."""

    key: str


class Delivery(NamedTuple):
    """A delivery in the database: its job, its key, the keys of its catch jobs, and whether one of them is open."""

    job: JobRecord
    key: str
    letters: frozenset[str] = frozenset()
    catching: bool = False


class EventVerdict(NamedTuple):
    """The verdict on one delivery; for a lost event, ``why`` is what is missing."""

    job_id: int
    fate: EventFate
    attempts: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended: the verdicts, the ledger, its circumstances, and the killed worker with what it held."""

    verdicts: Sequence[EventVerdict] = ()
    requests: Sequence[LedgerLine] = ()
    left_over: int = 0
    broken: int = 0
    withheld: int = 0
    killed: str = ""
    held: frozenset[int] = frozenset()
    interrupted: bool = False
    trouble: str = ""

    def count(self, *fates: EventFate) -> int:
        """Count the events with one of these fates."""
        return sum(each.fate in fates for each in self.verdicts)

    @property
    def accepted_twice(self) -> int:
        """The number of events that the receiver accepted again; anything but 0 is a defect of the receiver."""
        accepted = [each.key for each in self.requests if each.accepted]
        return len(accepted) - len(set(accepted))


def audit(
    cases: Sequence[Delivery], ledger: Sequence[LedgerLine], letters: Sequence[DeadLetter]
) -> tuple[list[EventVerdict], list[LedgerLine]]:
    """Compare deliveries with the ledger and the dead letters. Return the verdicts, and their lines of the ledger."""
    answered: dict[str, set[int | None]] = {case.key: set() for case in cases}
    own = [line for line in ledger if line.key in answered]
    for line in own:
        answered[line.key].add(line.status)
    written = {letter.key for letter in letters}
    return [_judge(case, answered[case.key], written) for case in cases], own


def _judge(case: Delivery, answered: set[int | None], written: set[str]) -> EventVerdict:
    job, fate, why = case.job, EventFate.LOST, ""
    if job.state is State.SUCCEEDED:
        confirmed = any(status is not None and 200 <= status < 300 for status in answered)  # noqa: PLR2004 - 2xx
        fate, why = (EventFate.DELIVERED, "") if confirmed else (fate, "the receiver never answered 2xx under its key")
    elif job.caught_at is not None and not case.letters & written:
        why = "it is not in the dead-letter file"
    elif job.caught_at is not None:
        fate = EventFate.GONE if 410 in answered else EventFate.CAUGHT  # noqa: PLR2004 - HTTP status Gone
    elif job.state not in FINAL or case.catching:
        fate = EventFate.UNFINISHED
    else:
        why = f"it is {job.state} and was never caught"
    return EventVerdict(job.id, fate, job.attempt, why)


def read_lines(path: Path, kind: type[T]) -> tuple[T, ...]:
    """Read a JSONL file, which may be missing or lack the end of its last line; a broken line is a DecodeError."""
    decoder = msgspec.json.Decoder(kind)
    return tuple(decoder.decode(line) for line in (path.read_bytes().split(b"\n")[:-1] if path.exists() else ()))


def rows(run: Result) -> list[tuple[str, int, str]]:
    """Return the rows of the table: subject, number, source. Rows that matter only above 0 are left out at 0."""
    delivered = run.count(EventFate.DELIVERED)
    retried = sum(each.fate is EventFate.DELIVERED and each.attempts > 1 for each in run.verdicts)
    again = sum(v.job_id in run.held and v.fate not in {EventFate.LOST, EventFate.UNFINISHED} for v in run.verdicts)
    table = [
        ("events in", len(run.verdicts), f"{run.left_over} left by an earlier run" if run.left_over else ""),
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
        ("still queued", run.count(EventFate.UNFINISHED), "for the next run on this database"),
        ("not enqueued", run.withheld, "interrupted before their turn"),
        ("broken lines of the input", run.broken, "listed above"),
        ("accepted twice", run.accepted_twice, "a defect of the receiver"),
        (f"held by {run.killed} when killed", len(run.held), f"{rerun} ran again elsewhere"),
    ]
    return table + [row for row in extra if row[1]]


def report(run: Result) -> Iterator[str]:
    """Yield the lines of the report: the table, at most five of the lost events, and the result in one sentence."""
    width = max(len(name) for name, _, _ in rows(run))
    for name, number, source in rows(run):
        yield f"{name:<{width}}  {number:>6}  {source}".rstrip()
    lost = [each for each in run.verdicts if each.fate is EventFate.LOST]
    yield from (f"lost: job {each.job_id}: {each.why}" for each in lost[:5])
    table = {name.strip(): number for name, number, _ in rows(run)}
    queued = f", {table['still queued']} still queued" if "still queued" in table else ""
    yield (
        f"{table['events in']} events in: {table['delivered']} delivered, {table['after retries']} of them after "
        f"retries, {table['caught']} caught, {table['lost']} lost{queued}; the receiver recognised "
        f"{table['repeats under the same key']} repeats by their idempotency key."
    )
