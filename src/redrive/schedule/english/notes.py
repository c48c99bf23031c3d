"""The parts of a refresh policy parsed so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from redrive.schedule.english.tokens import TextLine
from redrive.schedule.options import Action, Exhausted, Strategy
from redrive.schedule.schedule import Schedule


class Header(msgspec.Struct, frozen=True):
    """A line with others below it."""

    line: TextLine
    # The failure after which those below are done; None for what is done when it gives up.
    of_failure: int | None


@dataclass
class Notes:
    """The parts of a refresh policy parsed so far."""

    # The start of schedules that do not name one.
    start: datetime | None = None
    schedule: Schedule | None = None
    timeout: timedelta | None = None
    # By the number of the failure.
    delays: dict[int, timedelta] = field(default_factory=dict)
    # The delay after any further failure.
    further: timedelta | None = None
    strategy: Strategy | None = None
    # The effect of the last failure.
    exhausted: Exhausted | None = None
    # The number given for the last failure.
    last_failure: int | None = None
    give_up_after: timedelta | None = None
    # The number of attempts after which it is given up.
    attempts: int | None = None
    actions: list[Action] = field(default_factory=list)
    catch_up: timedelta | None = None
    jitter: timedelta | None = None
