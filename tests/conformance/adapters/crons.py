"""Adapters for the cron groups of ``ftl.json``.

FTL's readings and error texts come from `redrive.schedule.ftl`. Every pattern that FTL accepts, redrive's own reading
must accept too, with the same meaning, except where `redrive.schedule.ftl` documents a difference.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redrive.errors import ScheduleError
from redrive.schedule import CronExpression, ftl
from redrive.schedule.timezone import zone
from tests.conformance.adapters.vocabulary import UnknownWord, demand, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conformance.loading import Case

UTC = zone("UTC")
TICK = timedelta.resolution
NO_MORE = "unable to find next timeout for {}"
"""FTL's text after the last occurrence; redrive's iterator ends there."""

ALWAYS_DIFFERENT = re.compile(
    r"""0+\s*[smhSMH]      # midnight
    | .*(?<![0-9])0[0-9]  # octal
    | .*(\*,|,\*)         # a star in a list
    | .*["/]/             # a comment, or a quoted word
    | .*"
    """,
    re.VERBOSE,
)
DAYS = {5: (2, 4), 6: (3, 5), 7: (3, 5)}
"""The fields of days, by the number of fields."""


def moment(text: Any) -> datetime:
    """Return an instant; of its nanoseconds a datetime has the first six digits."""
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    except (TypeError, ValueError):
        raise UnknownWord(f"{text!r} (known: an instant, as 2024-06-09T12:34:56Z)") from None


def readings(pattern: str) -> Iterator[CronExpression]:
    """Yield the pattern as FTL reads it, and as redrive does, unless the two differ as documented."""
    yield ftl.parse(pattern)
    if not _is_read_otherwise(pattern):
        yield CronExpression.parse(pattern)


def _is_read_otherwise(pattern: str) -> bool:
    fields = pattern.split()
    if ALWAYS_DIFFERENT.match(pattern) or len(fields) not in DAYS:
        return bool(ALWAYS_DIFFERENT.match(pattern))
    has_year = len(fields) == max(DAYS) - 1 and re.search(r"[0-9]{4}", fields[-1])
    month_days, week_days = (fields[place] for place in DAYS[5 if has_year else len(fields)])
    ends_on_sunday = re.search(r"-[07]|(^|,)[07][-/]", week_days)
    is_restricted = "*" not in (month_days, week_days) and "*/" in month_days + week_days
    return bool(ends_on_sunday or is_restricted)


def refused(read_: Callable[[], object]) -> str | None:
    """Return the text of the error with which a reading is refused, if it is."""
    try:
        read_()
    except ScheduleError as error:
        return str(error)
    return None


def cron_errors(case: Case) -> None:
    """Check the reason why FTL refuses a pattern."""
    data = read(case.data, "pattern", "error", required=("pattern", "error"))
    assert data["error"] == refused(lambda: ftl.parse(data["pattern"]))


def cron_next(case: Case) -> None:
    """Check the first occurrence later than an instant; null if there is none."""
    data = read(case.data, "pattern", "after", "next", required=("pattern", "after", "next"))
    expected = None if data["next"] is None else moment(data["next"])
    for cron in readings(data["pattern"]):
        assert expected == next(cron.since(moment(data["after"]) + TICK, UTC), None)


def cron_series(case: Case) -> None:
    """Check the number of occurrences between two instants."""
    fields = ("pattern", "after_exclusive", "until_inclusive", "count")
    data = read(case.data, *fields, required=fields)
    after, until = moment(data["after_exclusive"]), moment(data["until_inclusive"])
    for cron in readings(data["pattern"]):
        found = itertools.takewhile(lambda each: each <= until, cron.since(after + TICK, UTC))
        assert data["count"] == len(list(found))


def cron_executed(case: Case) -> None:
    """Check the next occurrences as FTL's program printed them, or its error."""
    data = read(case.data, "pattern", "after", "next4", "error", required=("pattern",))
    demand({name: value for name, value in data.items() if value is not None}, "next4", "error")
    pattern = data["pattern"]
    if data.get("error") is not None:
        assert data["error"] == refused(lambda: ftl.parse(pattern))
        return
    after = moment(data.get("after"))
    for cron in readings(pattern):
        with contextlib.closing(cron.since(after + TICK, UTC)) as found:
            listed = [next(found, None) for _ in data["next4"]]
        shown = " ".join(pattern.split())
        assert data["next4"] == [_text(each) if each else NO_MORE.format(shown) for each in listed]


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
