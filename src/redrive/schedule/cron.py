"""Cron expressions: five, six or seven fields, names, ``@daily``, and FTL's shorthands.

=======================  ===============================================================================================
form                     means
=======================  ===============================================================================================
five fields              minute, hour, day of the month, month, day of the week
six fields               seconds before these; or a year after them, if the last field has a number from 1000
seven fields             seconds before these and a year after them
``@daily`` and so on     ``@hourly``, ``@midnight``, ``@weekly``, ``@monthly``, ``@yearly``, ``@annually``
``30s``, ``5m``, ``2h``  FTL's, also ``5 m``: when seconds, minutes or hours divide by that; ``5h`` is 0:00, 5:00 ...
``Mon``                  FTL's: midnight of that day of the week
=======================  ===============================================================================================

Fields are those of cron: ``*``, numbers, names of months and days, lists, ranges, steps (``2/5`` begins at 2 and goes
on to the end), Sunday as 0 and as 7, ``L`` for the last day of a month, ``LW`` for its last working day, ``5L`` for
its last Friday and ``1#2`` for its second Monday. If both days are restricted, one of them is enough; a field that
begins with ``*`` does not restrict (Debian's cron, and cronsim, which reads the fields).

When clocks are changed, an expression that names its minutes and hours fires once each day: at the first instant after
the gap for a time that does not exist, and at the first of both for one that exists twice. One with ``*`` in its
minutes or its hours counts real time: every ten minutes stays every ten minutes. It fires whenever the clock shows what
the fields allow: at both of the times that exist twice, and not at times that do not exist.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from redrive.errors import ScheduleError
from redrive.schedule.timezone import aware, changes, instant, instants, wall

_NAMED: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHORT = re.compile(r"([0-9]+)\s*([smh])", re.IGNORECASE)
_MOST_DIGITS = 4
_LONG_NUMBER = re.compile(r"[0-9]{5}")
_SHORTHANDS: Final[Mapping[str, tuple[str, int, str]]] = {
    "s": ("*/{} * * * * *", 60, "seconds"),
    "m": ("0 */{} * * * *", 60, "minutes"),
    "h": ("0 0 */{} * * *", 24, "hours"),
}
_YEARS = range(1970, 2100)
# Years that are listed in words.
_FEW_YEARS = 3
_YEAR = re.compile(r"[0-9]{4}")
_YEAR_TERM = re.compile(r"(\*|[0-9]{4}(?:-[0-9]{4})?)(?:/([0-9]+))?")
_FIELDS = ("second", "minute", "hour", "day of the month", "month", "day of the week", "year")
_FORMS = 'write "minute hour day month weekday", such as "*/5 * * * *", or @daily, 30s, 12h, Mon'
_STEPPED_DAY = re.compile(r"([0-6])/(\d+)")
# The number of values of a field, in the order of `_FIELDS`.
_SIZES = (60, 60, 24, 31, 12, 7)
# What follows the step in a schedule in English; there are no steps of days of the week.
_STEPS = ("seconds", "minutes", "hours", "days", "months on the 1st", None)
_CALLED = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")  # by cronsim
_SOME_DAY = datetime(2000, 1, 1)  # naive is the wall clock


class CronExpression(msgspec.Struct, frozen=True):
    """A parsed cron expression.

    Attributes:
        fields: seconds, minutes, hours, days of the month, months, days of the week.
        years: the years in which it occurs; None means all.
    """

    text: str
    fields: tuple[str, ...]
    years: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Parse an expression in one of the forms above.

        Raises:
            ScheduleError: the text is not valid, or can never occur.
        """
        if _LONG_NUMBER.search(text):
            raise _wrong(text, f"no number has more than {_MOST_DIGITS} digits")
        parts = _written_out(text).split()
        years = None
        if len(parts) == len(_FIELDS) or (len(parts) == len(_FIELDS) - 1 and _YEAR.search(parts[-1])):
            years = _read_years(parts.pop(), text)
        if len(parts) == len(_FIELDS) - 2:
            parts.insert(0, "0")
        if len(parts) != len(_FIELDS) - 1:
            raise _wrong(text, f"it has {len(text.split())} fields; {_FORMS}")
        _check_steps(text, parts)
        parts[5] = ",".join(_stepped_day(each) for each in parts[5].split(","))
        found = cls(text, tuple(parts), years)
        found._check()
        return found

    def __str__(self) -> str:
        """Return the expression as written."""
        return self.text

    @property
    def is_elapsed(self) -> bool:
        """Return True if it counts elapsed time when clocks are changed."""
        return self.fields[1].startswith("*") or self.fields[2].startswith("*")

    @property
    def words(self) -> str:
        """Return the expression in words, such as "at 03:00 every day"."""
        fields = self.fields[1:] if self.fields[0] == "0" else self.fields
        found = CronSim(" ".join(fields), _SOME_DAY).explain()
        return found[:1].lower() + found[1:] + _written_years(self.years)

    def since(
        self, at: datetime, place: ZoneInfo, *, without: frozenset[datetime] = frozenset()
    ) -> Generator[datetime, None, None]:
        """Yield the occurrences from an instant on, that instant included.

        Args:
            at: aware.
            place: the time zone of the fields.
            without: excluded wall-clock times in gaps, naive.

        Yields:
            Instants in UTC, strictly increasing.
        """
        # A nearby clock change maps times to instants in another order, so the search begins earlier by as much.
        begin = wall(aware("at", at), place) - changes(at, place) - timedelta.resolution
        named = (_after_gap(local, place) for local in self._walk(begin) if local not in without)
        found = self._elapsed(begin, place) if self.is_elapsed else named
        last = at - timedelta.resolution
        for each in found:
            if each > last:
                last = each
                yield each

    def _elapsed(self, begin: datetime, place: ZoneInfo) -> Iterator[datetime]:
        # The second instants of times in a fold.
        repeated: list[datetime] = []
        for local in self._walk(begin):
            found = instants(local, place)
            while found and repeated and repeated[0] < found[0]:
                yield heapq.heappop(repeated)
            yield from found[:1]
            for each in found[1:]:
                heapq.heappush(repeated, each)
        yield from sorted(repeated)

    def _check(self) -> None:
        try:
            CronSim(" ".join(self.fields), _SOME_DAY)
        except CronSimError as error:
            raise self._refused(str(error)) from error
        first = _SOME_DAY.replace(year=min(self.years)) if self.years else _SOME_DAY
        if next(self._walk(first - timedelta(seconds=1)), None) is None:
            raise _never(self.text)

    def _refused(self, message: str) -> ScheduleError:
        """Return the error for a message of cronsim."""
        # cronsim names the field that it cannot read, or that of the days if no such month has such a day.
        place = next(number for number, name in enumerate(_CALLED) if message.endswith(name))
        alone = ["*"] * len(self.fields)
        alone[place] = self.fields[place]
        try:
            CronSim(" ".join(alone), _SOME_DAY)
        except CronSimError:
            return _wrong(self.text, f"{self.fields[place]!r} is not a valid {_FIELDS[place]}")
        return _never(self.text)

    def _walk(self, local: datetime) -> Iterator[datetime]:
        """Return the occurrences later than a time, in the same kind of time."""
        if self.years is None:
            return CronSim(" ".join(self.fields), local)
        return itertools.chain.from_iterable(self._walk_year(each, local) for each in sorted(self.years))

    def _walk_year(self, year: int, local: datetime) -> Iterator[datetime]:
        begin = local.replace(year=year, month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
        found = CronSim(" ".join(self.fields), max(local, begin - timedelta(seconds=1)))
        return itertools.takewhile(lambda each: each.year == year, found)


def _never(text: str) -> ScheduleError:
    return ScheduleError(f"the cron expression {text!r} never occurs")


def _wrong(text: str, why: str) -> ScheduleError:
    return ScheduleError(f"the cron expression {text!r} is not understood: {why}")


def _written_out(text: str) -> str:
    """Return the fields that a short form stands for."""
    bare = text.strip()
    if bare.startswith("@"):
        if bare.lower() not in _NAMED:
            raise _wrong(text, f'of these names there are {", ".join(_NAMED)}; an interval is "every 90 minutes"')
        return _NAMED[bare.lower()]
    if bare.upper() in _DAYS:
        return f"0 0 * * {bare}"
    short = _SHORT.fullmatch(bare)
    if short is None:
        return bare
    number, (form, most, unit) = int(short[1]), _SHORTHANDS[short[2].lower()]
    if not 0 < number < most:
        raise _wrong(text, f"the number lies between 1 and {most - 1}{_in_english(number, unit)}")
    return form.format(number)


def uneven(text: str) -> str | None:
    """Return why a short form such as ``45m`` has intervals of two lengths; None if it has not."""
    short = _SHORT.fullmatch(text.strip())
    if short is None:
        return None
    number, (form, most, unit) = int(short[1]), _SHORTHANDS[short[2].lower()]
    if most % number == 0:
        return None
    return (
        f"{text} begins anew after {most} {unit}, and {number} does not divide {most}: an interval is "
        f'"every {number} {unit}", and what {text} means is "{form.format(number)}"'
    )


def _read_years(field: str, text: str) -> frozenset[int] | None:
    if field == "*":
        return None
    found: set[int] = set()
    for term in field.split(","):
        read = _YEAR_TERM.fullmatch(term)
        if read is None or (read[2] is not None and not int(read[2])):
            raise _wrong(text, f"{term!r} is not a valid year")
        span, step = read[1], read[2]
        low, dash, high = span.partition("-")
        first = _YEARS[0] if span == "*" else int(low)
        last = int(high) if dash else (_YEARS[-1] if step or span == "*" else first)
        found.update(range(first, last + 1, int(step or 1)))
    if not found or not found <= set(_YEARS):
        raise _wrong(text, f"{field!r} names no years between {_YEARS[0]} and {_YEARS[-1]}")
    return frozenset(found)


def _check_steps(text: str, parts: list[str]) -> None:
    """Refuse a step that is longer than its field, such as ``*/90`` minutes: it would mean each full hour."""
    for field, part, size, unit in zip(_FIELDS, parts, _SIZES, _STEPS, strict=False):
        for step in map(int, re.findall(r"/(\d+)", part)):
            if step > size:
                why = f"a step of {step} is longer than the field: {part!r} as {field} counts anew after {size}"
                raise _wrong(text, why + _in_english(step, unit))


def _in_english(step: int, unit: str | None) -> str:
    """Return the form in English of a step that is too long for a cron expression."""
    return "" if unit is None or not step else f'; write "every {step} {unit}"'


def _stepped_day(term: str) -> str:
    """Write the end of a stepped day of the week, which is Saturday: cronsim would include a Sunday as 7."""
    return _STEPPED_DAY.sub(r"\1-6/\2", term) if _STEPPED_DAY.fullmatch(term) else term


def _after_gap(local: datetime, place: ZoneInfo) -> datetime:
    """Return the instant of a wall-clock time; the first instant after the gap for a time that does not exist."""
    found = instant(local, place)
    assert found is not None  # a gap is shifted
    if wall(found, place) == local:
        return found
    before = local.replace(tzinfo=place, fold=1).astimezone(UTC)
    while found - before > timedelta(seconds=1):
        middle = before + (found - before) // 2
        if wall(middle, place) < local:
            before = middle
        else:
            found = middle
    return found.replace(microsecond=0)


def _written_years(years: frozenset[int] | None) -> str:
    if years is None:
        return ""
    if len(years) > _FEW_YEARS:
        return f" in {len(years)} years between {min(years)} and {max(years)}"
    return f" in {', '.join(map(str, sorted(years)))}"
