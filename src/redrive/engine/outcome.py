"""What an attempt can end with. PURE.

The executor runs a handler, looks at what happened, and says it as one of these frozen values (the habit of oban-py's
``_executor.py``). Nothing else about the attempt travels further; `redrive.engine.settle` turns the value into a
transition.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from redrive.engine.records import Hold
from redrive.policy import Failure

__all__ = [
    "Cancelled",
    "Expired",
    "Failed",
    "Lost",
    "Outcome",
    "Released",
    "Snoozed",
    "Succeeded",
    "Suspended",
    "Unreadable",
]


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned.

    Attributes:
        result: its result as JSON, or None when it returned None.
    """

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, took too long, or could not be called.

    Attributes:
        failure: the classified error.
        traceback: text for people, possibly empty.
    """

    failure: Failure
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be called again later.

    Attributes:
        delay: how long to wait.
        why: shown while the job waits.
    """

    delay: timedelta
    why: str = ""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The handler has started something outside; somebody else will say how it ended.

    Attributes:
        wait_for: how long an answer is waited for; after that the attempt has failed.
    """

    wait_for: timedelta


@dataclass(frozen=True, slots=True)
class Released:
    """The worker gives the job back without having finished it.

    Attributes:
        why: "shutdown", "unknown task ...": shown while the job waits.
        delay: how long it should not be claimed again.
        hold: the reason for the delay.
        started: the handler had begun, and was cut off: how far it got is unknown.
    """

    why: str
    delay: timedelta = timedelta(0)
    hold: Hold = Hold.RELEASE
    started: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The handler could not be called: the code of this worker cannot read the arguments of the job, or its policy.

    Attributes:
        why: what does not fit.
        policy: is it the policy?
    """

    why: str
    policy: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler says that the job is no longer wanted.

    Attributes:
        why: shown on the job.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline of the policy had passed before the handler could be called."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker fell silent, or its attempt outlived its hard timeout; said by the sweep.

    Attributes:
        why: which of the two, and which worker.
    """

    why: str


Outcome: TypeAlias = Succeeded | Failed | Snoozed | Suspended | Released | Unreadable | Cancelled | Expired | Lost
