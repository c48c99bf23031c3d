"""The ways in which an attempt ends. PURE.

The executor runs a handler and describes its end by one of these values; `redrive.engine.settle` turns it into a
transition.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

import msgspec

from redrive.engine.records import Hold
from redrive.policy import Failure


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned; ``result`` is its return value as JSON, or None."""

    result: bytes | None = None


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised, timed out, or could not be called; ``traceback`` may be empty."""

    failure: Failure
    traceback: str = ""


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    """The handler asked to be called again after ``delay``; ``why`` is shown until then."""

    delay: timedelta
    why: str = ""


class Suspended(msgspec.Struct, frozen=True, gc=False):
    """The handler returned `Pending`: the attempt stays open for an external completion, for ``wait_for`` at most."""

    wait_for: timedelta


class Released(msgspec.Struct, frozen=True, gc=False):
    """The worker gives the job back unfinished.

    Attributes:
        delay: time before the job can be claimed again.
        started: the handler had begun and was cancelled; its effects are unknown.
    """

    why: str
    delay: timedelta = timedelta(0)
    hold: Hold = Hold.RELEASE
    started: bool = False


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The code of this worker cannot decode the arguments of the job, or, if ``policy`` is True, its policy."""

    why: str
    policy: bool = False


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The handler cancelled its job; ``why`` is shown on the job."""

    why: str


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The deadline of the policy had passed before the handler could be called."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The worker died, or the attempt exceeded its hard time limit; found by the sweep. ``why`` names the worker."""

    why: str


Outcome: TypeAlias = Succeeded | Failed | Snoozed | Suspended | Released | Unreadable | Cancelled | Expired | Lost
