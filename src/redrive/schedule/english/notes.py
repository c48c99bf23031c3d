"""What a text has said so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redrive.schedule.english.tokens import TextLine
from redrive.schedule.options import Action, Exhausted, Strategy
from redrive.schedule.schedule import Schedule

__all__ = ["Header", "Notes"]


@dataclass(frozen=True)
class Header:
    """A line with others below it.

    Attributes:
        line: which.
        of_failure: the failure after which those below are done; None for what is done when it gives up.
    """

    line: TextLine
    of_failure: int | None


@dataclass
class Notes:
    """What a text has said so far.

    Attributes:
        start: the start of schedules that do not say their own.
        schedule: when.
        timeout: of one attempt.
        delays: by the number of the failure.
        further: the delay after any further failure.
        strategy: what becomes of retries that do not fit.
        exhausted: what the last failure leads to.
        last_failure: which one that is said to be.
        give_up_after: how long it may fail.
        attempts: after how many attempts it is said to give up.
        actions: what is done then.
        catch_up: how late a refresh may be started.
        jitter: over how long starts are spread.
    """

    start: datetime | None = None
    schedule: Schedule | None = None
    timeout: timedelta | None = None
    delays: dict[int, timedelta] = field(default_factory=dict)
    further: timedelta | None = None
    strategy: Strategy | None = None
    exhausted: Exhausted | None = None
    last_failure: int | None = None
    give_up_after: timedelta | None = None
    attempts: int | None = None
    actions: list[Action] = field(default_factory=list)
    catch_up: timedelta | None = None
    jitter: timedelta | None = None
