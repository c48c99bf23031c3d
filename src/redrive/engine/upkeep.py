"""What people did to jobs and queues, and what should not be so: as it is read from a store. PURE."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Finding", "Operated"]


@dataclass(frozen=True, slots=True)
class Operated:
    """A line of the audit log: something that a person did.

    Attributes:
        id: in the order in which they were done.
        at: when.
        actor: who: ``user@host`` unless told otherwise.
        action: one word: ``cancel``, ``retry``, ``redrive`` ...
        details: which jobs, and how, as JSON.
    """

    id: int
    at: datetime
    actor: str
    action: str
    details: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the database that must not be.

    Attributes:
        id: the job that it is about, or another number that the text names.
        text: what is wrong, as a sentence.
        rule: name of the rule that it breaks.
    """

    id: int
    text: str
    rule: str
