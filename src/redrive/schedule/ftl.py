"""FTL's own reading of a cron pattern, error texts word for word.

For programs that must agree with FTL schemas, as `redrive.policy.ftl` is for retry directives. FTL reads a pattern by
a parser that knows shapes only, then counts its components, then hands them to a cron library, and at last asks for
the next occurrence; each step has errors of its own.

FTL knows neither names nor ``@daily``, ``L`` or ``#``. ``0s`` and ``0m`` mean midnight of each day there; our own
reading refuses them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from redrive.errors import ScheduleError
from redrive.schedule.cron import Cron
from redrive.schedule.wall import zone

__all__ = ["parse"]

_TOKENS = re.compile(r"(?P<number>\d+)|(?P<word>[a-zA-Z_]\w*)|(?P<mark>\S)")
_DAYS = frozenset({"sun", "mon", "tue", "wed", "thu", "fri", "sat"})
_SHORT = {"s": 0, "m": 1, "h": 2}
_FIRST_YEAR = 1000


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def unexpected(self) -> ScheduleError:
        return ScheduleError(f'1:{self.at + 1}: unexpected token "{self.text}"')


class _Field(NamedTuple):
    name: str
    low: int
    high: int


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day-of-month", 1, 31),
    _Field("month", 1, 12),
    _Field("day-of-week", 0, 7),
    _Field("year", 1970, 2099),
)


def parse(text: str, *, now: datetime) -> Cron:
    """Read a pattern as FTL does.

    Args:
        text: the pattern.
        now: FTL refuses what does not occur after this.

    Returns:
        What it means.

    Raises:
        ScheduleError: FTL refuses it, with FTL's text.
    """
    tokens = [_Token(str(each.lastgroup), each[0], each.start()) for each in _TOKENS.finditer(text)]
    short = _shorthand(tokens)
    components = short or _components(tokens)
    if not 5 <= len(components) <= len(_FIELDS):  # noqa: PLR2004 - as in the text
        raise ScheduleError(f"expected 5-7 components, got {len(components)}")
    full = _padded(components)
    for field, component in zip(_FIELDS, full, strict=True):
        for step in component.split(","):
            _check(field, step)
    try:
        found = replace(Cron.parse(" ".join(full)), text=text)
    except ScheduleError as error:  # a range that ends before it begins, or a thirtieth of February
        raise _never(text) from error
    if next(found.since(now + timedelta.resolution, zone("UTC")), None) is None:
        raise _never(text)
    return found


def _never(text: str) -> ScheduleError:
    return ScheduleError(f"unable to find next timeout for {text}")


def _shorthand(tokens: list[_Token]) -> list[str] | None:
    """The seven components that a shorthand stands for."""
    if tokens and tokens[0].text.lower() in _DAYS:
        rest, fields = tokens[1:], ["0", "0", "0", "*", "*", tokens[0].text, "*"]
    elif len(tokens) > 1 and tokens[0].kind == "number" and tokens[1].kind == "word":
        unit = _SHORT.get(tokens[1].text)
        if unit is None:
            raise tokens[1].unexpected
        rest, fields = tokens[2:], ["0"] * (unit + 1) + ["*"] * (6 - unit)
        if number := int(tokens[0].text):
            fields[unit] = f"*/{number}"
        else:
            fields[:3] = ["0"] * 3
    else:
        return None
    if rest:
        raise rest[0].unexpected
    return fields


def _components(tokens: list[_Token]) -> list[str]:
    """Components are told apart by what cannot follow within one: a number or a star after a number or a star."""
    if not tokens or not _begins(tokens[0]):
        raise ScheduleError("1:1: sub-expression Component+ must match at least once")
    found: list[str] = []
    wanted = True  # may a number or a star come that belongs to the component?
    for token in tokens:
        if _begins(token):
            if wanted and found:
                found[-1] += token.text
            else:
                found.append(token.text)
            wanted = False
        elif token.text in {",", "-", "/"} and not wanted:
            found[-1] += token.text
            wanted = True
        else:
            raise token.unexpected
    return found


def _begins(token: _Token) -> bool:
    return token.kind == "number" or token.text == "*"


def _padded(components: list[str]) -> list[str]:
    """With seconds and a year: six components have the one or the other."""
    if len(components) == len(_FIELDS):
        return components
    if len(components) == len(_FIELDS) - 1:
        has_year = any(int(each) >= _FIRST_YEAR for each in re.findall(r"\d+", components[-1]))
        return ["0", *components] if has_year else [*components, "*"]
    return ["0", *components, "*"]


def _check(field: _Field, step: str) -> None:
    span, slash, interval = step.partition("/")
    if slash and not 1 <= int(interval) <= field.high:
        raise ScheduleError(f"failed to parse cron expression invalid interval {step}")
    if any(not field.low <= int(each) <= field.high for each in re.findall(r"\d+", span)):
        raise ScheduleError(f"failed to parse cron expression syntax error in {field.name} field: '{step}'")
