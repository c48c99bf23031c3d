"""What an attempt can end with. PURE.

The executor runs a handler, looks at what happened, and says it as one of these frozen values (the habit of oban-py's
``_executor.py``). Nothing else about the attempt travels further; `redrive.engine.settle` turns the value into a
transition.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

import msgspec

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


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned.

    Attributes:
        result: its result as JSON, or None when it returned None.
    """

    result: bytes | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised, took too long, or could not be called.

    Attributes:
        failure: the classified error.
        traceback: text for people, possibly empty.
    """

    failure: Failure
    traceback: str = ""


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    """The handler asked to be called again later.

    Attributes:
        delay: how long to wait.
        why: shown while the job waits.
    """

    delay: timedelta
    why: str = ""


class Suspended(msgspec.Struct, frozen=True, gc=False):
    """The handler has started something outside; somebody else will say how it ended.

    Attributes:
        wait_for: how long an answer is waited for; after that the attempt has failed.
    """

    wait_for: timedelta


class Released(msgspec.Struct, frozen=True, gc=False):
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


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The handler could not be called: the code of this worker cannot read the arguments of the job, or its policy.

    Attributes:
        why: what does not fit.
        policy: is it the policy?
    """

    why: str
    policy: bool = False


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The handler says that the job is no longer wanted.

    Attributes:
        why: shown on the job.
    """

    why: str


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The deadline of the policy had passed before the handler could be called."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The worker fell silent, or its attempt outlived its hard timeout; said by the sweep.

    Attributes:
        why: which of the two, and which worker.
    """

    why: str


Outcome: TypeAlias = Succeeded | Failed | Snoozed | Suspended | Released | Unreadable | Cancelled | Expired | Lost
