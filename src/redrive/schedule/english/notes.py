"""The parts of a refresh policy parsed so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redrive.schedule.english.tokens import TextLine
from redrive.schedule.options import Action, Exhausted, Strategy
from redrive.schedule.schedule import Schedule


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
    """The parts of a refresh policy parsed so far.

    Attributes:
        start: the start of schedules that do not name one.
        timeout: time limit of one attempt.
        delays: by the number of the failure.
        further: the delay after any further failure.
        strategy: the treatment of retries that do not fit.
        exhausted: the effect of the last failure.
        last_failure: the number given for the last failure.
        give_up_after: how long the refresh may fail.
        attempts: the number of attempts after which it is given up.
        actions: the actions when it is given up.
        catch_up: how late a refresh may start.
        jitter: maximum random delay of starts.
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
