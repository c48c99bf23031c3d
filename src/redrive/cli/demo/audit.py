"""The demo's verdict: what the database says, held against what the receiver wrote down. PURE.

Two witnesses that know nothing of each other: the sender's database, which says what became of each job, and the
receiver's ledger, which says what came over the wire. A dead-letter file is a third. An event is accounted for only if
they agree:

===========  =================================================  ===================================================
fate         the database says                                  and, independently
===========  =================================================  ===================================================
delivered    succeeded                                          the ledger has a 2xx under its idempotency key
caught       dead, and its catch task took it                   the dead-letter file has it
gone         the same                                           and the ledger has a 410 under its key
unfinished   ready or running, or dead with its catch to come   (only a run that was interrupted may leave these)
lost         anything else                                      or the other witness does not confirm it
===========  =================================================  ===================================================

So a job that says "succeeded" is *lost* here if the receiver never answered it. That a receiver took an event whose job
was caught is no loss: after a reset nobody can know better.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from redrive.engine.lifecycle import FINAL, State
from redrive.engine.records import JobRecord

__all__ = ["Audit", "Case", "DeadLetter", "Fate", "Finding", "Request", "audit", "read_lines"]

T = TypeVar("T")

GONE = 410


class Fate(StrEnum):
    """What became of an event."""

    DELIVERED = "delivered"
    CAUGHT = "caught"
    GONE = "gone"
    UNFINISHED = "unfinished"
    LOST = "lost"


class Request(msgspec.Struct, frozen=True):
    """What matters here of a line of the receiver's ledger.

    Attributes:
        key: the idempotency key.
        request: the how-manieth under this key, from 1.
        status: the HTTP status that was sent, if any.
        accepted: the receiver took the event now.
        duplicate: it had taken the event before.
    """

    key: str
    request: int
    status: int | None
    accepted: bool
    duplicate: bool


class DeadLetter(msgspec.Struct, frozen=True):
    """What matters here of a line of the dead-letter file.

    Attributes:
        key: the idempotency key of the catch job that wrote it.
    """

    key: str


@dataclass(frozen=True, slots=True)
class Case:
    """An event, as the database knows it.

    Attributes:
        job: its delivery.
        key: the idempotency key of the delivery.
        letters: the idempotency keys of its catch jobs, under one of which its dead letter is written.
        catching: is one of them still to end?
    """

    job: JobRecord
    key: str
    letters: frozenset[str] = frozenset()
    catching: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one event.

    Attributes:
        job_id: its delivery.
        fate: what became of it.
        attempts: how often delivery was tried.
        why: for a lost event, what is missing.
    """

    job_id: int
    fate: Fate
    attempts: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdict on a run.

    Attributes:
        findings: one for each event.
        requests: what the receiver saw of these events.
    """

    findings: tuple[Finding, ...]
    requests: tuple[Request, ...]

    def count(self, *fates: Fate) -> int:
        """Events with one of these fates."""
        return sum(finding.fate in fates for finding in self.findings)

    @property
    def retried(self) -> int:
        """Events that were delivered, but not by the first attempt."""
        return sum(finding.fate is Fate.DELIVERED and finding.attempts > 1 for finding in self.findings)

    @property
    def lost(self) -> tuple[Finding, ...]:
        """The events that nobody can account for."""
        return tuple(finding for finding in self.findings if finding.fate is Fate.LOST)

    @property
    def repeats(self) -> int:
        """Requests under a key that the receiver had seen before."""
        return sum(request.request > 1 for request in self.requests)

    @property
    def duplicates(self) -> int:
        """Repeats of an event that the receiver had taken before: without the key it would have taken them twice."""
        return sum(request.duplicate for request in self.requests)

    @property
    def taken_twice(self) -> int:
        """Keys whose event the receiver took more than once; anything but 0 is a defect of the receiver."""
        taken = [request.key for request in self.requests if request.accepted]
        return len(taken) - len(set(taken))


def audit(cases: tuple[Case, ...], ledger: tuple[Request, ...], letters: tuple[DeadLetter, ...]) -> Audit:
    """Hold the witnesses against each other.

    Args:
        cases: the events, as the database knows them.
        ledger: the requests, as the receiver knows them; those of other events are passed over.
        letters: the dead-letter file.

    Returns:
        What became of each event.
    """
    by_key: dict[str, list[Request]] = defaultdict(list)
    for request in ledger:
        by_key[request.key].append(request)
    written = {letter.key for letter in letters}
    findings = tuple(_judge(case, by_key[case.key], case.letters & written) for case in cases)
    return Audit(findings, tuple(request for case in cases for request in by_key[case.key]))


def _judge(case: Case, requests: list[Request], written: frozenset[str]) -> Finding:
    job, answered = case.job, {request.status for request in requests}
    fate, why = Fate.LOST, ""
    if job.state is State.SUCCEEDED:
        confirmed = any(status is not None and 200 <= status < 300 for status in answered)  # noqa: PLR2004 - 2xx
        fate, why = (Fate.DELIVERED, "") if confirmed else (fate, "the receiver never answered 2xx under its key")
    elif job.caught_at is not None:
        fate, why = (_caught(answered), "") if written else (fate, "it is not in the dead-letter file")
    elif job.state not in FINAL or case.catching:
        fate = Fate.UNFINISHED
    else:
        why = f"it is {job.state} and was never caught"
    return Finding(job.id, fate, job.attempt, why)


def _caught(answered: set[int | None]) -> Fate:
    return Fate.GONE if GONE in answered else Fate.CAUGHT


def read_lines(path: Path, kind: type[T]) -> tuple[T, ...]:
    """Read a JSONL file that another process appends to; a last line without its end is left for later.

    Args:
        path: the file; if it is not there, it has no lines.
        kind: what to read each line as; fields that it does not have are passed over.

    Returns:
        The lines.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: a line cannot be read as that.
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    decoder = msgspec.json.Decoder(kind)
    return tuple(decoder.decode(line) for line in lines)
