"""Adapters for the cron groups of ``ftl.json``.

FTL's readings and error texts are asked of `redrive.schedule.ftl`. Whatever FTL accepts, redrive's own reading must
accept too, with the same meaning; FTL's shorthand of zero, which means midnight there, excepted.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from redrive.errors import ScheduleError
from redrive.schedule import Cron, ftl
from redrive.schedule.wall import zone
from tests.conformance.adapters.policies import START
from tests.conformance.adapters.vocabulary import demand, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.loading import Case

UTC = zone("UTC")
TICK = timedelta.resolution
NO_MORE = "unable to find next timeout for {}"
"""What FTL says where nothing follows any more; ours ends there."""


def moment(text: str) -> datetime:
    """An instant; of its nanoseconds a datetime has the first six digits."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))


def readings(pattern: str, after: datetime) -> Iterator[Cron]:
    """The pattern as FTL reads it, and as redrive does."""
    yield ftl.parse(pattern, now=after)
    if not re.fullmatch(r"0+[smh]", pattern):
        yield Cron.parse(pattern)


def cron_errors(case: Case) -> None:
    """Why FTL refuses a pattern."""
    data = read(case.data, "pattern", "error")
    with pytest.raises(ScheduleError) as refused:
        ftl.parse(data["pattern"], now=START)
    assert data["error"] == str(refused.value)


def cron_next(case: Case) -> None:
    """The first occurrence later than an instant."""
    data = read(case.data, "pattern", "after", "next")
    after = moment(data["after"])
    for cron in readings(data["pattern"], after):
        assert moment(data["next"]) == next(cron.since(after + TICK, UTC))


def cron_series(case: Case) -> None:
    """How many occurrences there are between two instants."""
    data = read(case.data, "pattern", "after_exclusive", "until_inclusive", "count")
    after, until = moment(data["after_exclusive"]), moment(data["until_inclusive"])
    for cron in readings(data["pattern"], after):
        found = itertools.takewhile(lambda each: each <= until, cron.since(after + TICK, UTC))
        assert data["count"] == len(list(found))


def cron_executed(case: Case) -> None:
    """The next four occurrences as FTL's program printed them, or its error."""
    data = read(case.data, "pattern", "after", "next4", "error")
    demand(data, "next4", "error")
    pattern = data["pattern"]
    if "error" in data:
        with pytest.raises(ScheduleError) as refused:
            ftl.parse(pattern, now=START)
        assert data["error"] == str(refused.value)
        return
    after = moment(data["after"])
    for cron in readings(pattern, after):
        with contextlib.closing(cron.since(after + TICK, UTC)) as found:
            listed = [next(found, None) for _ in data["next4"]]
        assert data["next4"] == [_text(each) if each else NO_MORE.format(pattern) for each in listed]


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
