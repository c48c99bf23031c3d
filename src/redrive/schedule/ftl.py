"""FTL's own reading of a cron pattern, with its error messages word for word. PURE.

For programs that must agree with FTL schemas, as `redrive.policy.ftl` is for retry directives. FTL reads a pattern in
four steps, each with errors of its own: a *lexer*; a *parser* that accepts shapes only; a *cron library* that checks
the values of each field; and a search for an occurrence from 2020 on.

Differences from redrive's own reading (`redrive.schedule.CronExpression`), always in UTC:

- There are neither names nor ``@daily``, ``L`` or ``#``.
- ``0s``, ``0m`` and ``0h`` mean midnight of each day; redrive refuses them.
- A number with a leading zero is octal: ``010`` is 8, and ``08`` is an error.
- A star beside other values in a list allows all values, in a list of minutes even values out of range.
- ``*/2`` restricts a day field: if both day fields are restricted, one of them is enough.
- A range of days of the week that ends with Sunday, such as ``5-7``, ends with Saturday (a defect of the library).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from redrive.errors import PolicyValueError, ScheduleError
from redrive.policy.ftl import parse_duration
from redrive.schedule.cron import CronExpression
from redrive.schedule.timezone import zone

_TOKENS = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+)
    |(?P<ident>[a-zA-Z_][a-zA-Z0-9_]*(?![a-zA-Z0-9_]))
    |(?P<comment>//[^\n]*)
    |(?P<string>"(?:\\.|[^"])*")
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<punct>[-%/_:\[\]{}<>()*+?.,\\^$|\#~!'@])""",
    re.VERBOSE,
)
# Characters of an unreadable text that the lexer shows.
_SAMPLE = 16
_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_UNITS = ("s", "m", "h")
_INT64 = 2**63 - 1
# Digits of a number that may fit into 64 bits.
_LONGEST = 22
_FIRST_YEAR = 1000
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
_SUNDAY = 7


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    place: str

    def is_one_of(self, *words: str) -> bool:
        """Return True if the token equals a literal of the grammar; identifiers are compared without case."""
        if self.kind == "ident":
            return self.text.lower() in map(str.lower, words)
        return self.text in words

    @property
    def begins_component(self) -> bool:
        return self.kind == "number" or self.is_one_of("*")

    def unexpected(self, expected: str = "") -> ScheduleError:
        wanted = f" (expected {expected})" if expected else ""
        return ScheduleError(f"{self.place}: unexpected token {_quoted(self.text)}{wanted}")


class _Step(msgspec.Struct, frozen=True):
    """A term of a component: ``*`` where the start is None."""

    start: int | None
    end: int | None = None
    interval: int | None = None

    def __str__(self) -> str:
        span = "*" if self.start is None else f"{self.start}" if self.end is None else f"{self.start}-{self.end}"
        return span if self.interval is None else f"{span}/{self.interval}"


_Component = tuple[_Step, ...]
_ALL: _Component = (_Step(None),)
_ZERO: _Component = (_Step(0),)


class _Field(msgspec.Struct, frozen=True):
    """A field of the cron library; ``last`` is the end of a range without an end."""

    name: str
    low: int
    high: int
    last: int

    def values(self, component: _Component) -> frozenset[int] | None:
        """Return the values that a component allows; None where a star allows all."""
        for step in component:
            if self._is_valid(step) and step.interval is not None and not self._is_interval(step.interval):
                raise ScheduleError(f"failed to parse cron expression invalid interval {step}")
        is_day = self.name.startswith("day")
        for step in component:
            if not self._is_valid(step):
                raise ScheduleError(f"failed to parse cron expression syntax error in {self.name} field: '{step}'")
            if step == _ALL[0] and not is_day:
                return None
        if _ALL[0] in component:
            return None
        return frozenset(value for step in component for value in self._span(step))

    def _is_valid(self, step: _Step) -> bool:
        return all(self.low <= each <= self.high for each in (step.start, step.end) if each is not None)

    def _is_interval(self, interval: int) -> bool:
        # The library looks a number up in a table, which has the numbers of minutes and of years.
        return 1 <= interval <= self.last and (interval <= _MINUTE.last or interval >= _YEAR.low)

    def _span(self, step: _Step) -> range:
        start, end = (self._folded(each) for each in (step.start, step.end))
        if step.start is not None and step.end is None and step.interval is None:
            return range(start or 0, (start or 0) + 1)
        if self.high == _SUNDAY and end == 0:
            end = self.last
        return range(self.low if start is None else start, (self.last if end is None else end) + 1, step.interval or 1)

    def _folded(self, value: int | None) -> int | None:
        return 0 if value == _SUNDAY == self.high else value


_MINUTE = _Field("minute", 0, 59, 59)
_YEAR = _Field("year", 1970, 2099, 2099)
_FIELDS = (
    _Field("second", 0, 59, 59),
    _MINUTE,
    _Field("hour", 0, 23, 23),
    _Field("day-of-month", 1, 31, 31),
    _Field("month", 1, 12, 12),
    _Field("day-of-week", 0, _SUNDAY, _SUNDAY - 1),
    _YEAR,
)


def parse(text: str) -> CronExpression:
    """Parse a pattern as FTL does, in UTC.

    Raises:
        ScheduleError: FTL refuses the pattern; the message is FTL's.
    """
    shown, components = _Parser(_lex(text)).pattern()
    if not 5 <= len(components) <= len(_FIELDS):  # noqa: PLR2004 - as in the text
        raise ScheduleError(f"expected 5-7 components, got {len(components)}")
    full = _padded(components)
    values = [field.values(component) for field, component in zip(_FIELDS, full, strict=True)]
    never = ScheduleError(f"unable to find next timeout for {shown}")
    days = {field: values[field] for field in (3, 5)}
    # One of two restricted day fields is enough.
    if days[3] == frozenset() and days[5]:
        values[3] = None
    if days[5] == frozenset() and days[3]:
        values[5] = None
    if frozenset() in values:
        raise never
    texts = [_text(component, allowed, field) for field, component, allowed in zip(_FIELDS, full, values, strict=True)]
    try:
        found = replace(CronExpression.parse(" ".join(texts)), text=text)
    except ScheduleError as error:  # a thirtieth of February
        raise never from error
    if next(found.since(_EPOCH, zone("UTC")), None) is None:
        raise never
    return found


def _text(component: _Component, allowed: frozenset[int] | None, field: _Field) -> str:
    if allowed is None:
        return "*"
    if len(component) == 1 and component[0].start is None and not field.name.startswith("day"):
        return str(component[0])
    return ",".join(map(str, sorted(allowed)))


def _padded(components: list[_Component]) -> list[_Component]:
    """Add seconds and a year where they are missing: six components have one of them."""
    if len(components) == len(_FIELDS):
        return components
    if len(components) == len(_FIELDS) - 1:
        has_year = any(max(step.start or 0, step.end or 0) >= _FIRST_YEAR for step in components[-1])
        return [_ZERO, *components] if has_year else [*components, _ALL]
    return [_ZERO, *components, _ALL]


def _lex(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        match = _TOKENS.match(text, at)
        if match is None:
            rest = text[at:]
            shown = rest if len(rest) <= _SAMPLE else rest[:_SAMPLE] + "..."
            raise ScheduleError(f"{line}:{column}: invalid input text {_quoted(shown)}")
        if match.lastgroup != "blank":
            tokens.append(_Token(str(match.lastgroup), _value(match), f"{line}:{column}"))
        at = match.end()
    end = f"{text.count(chr(10)) + 1}:{len(text) - text.rfind(chr(10))}"
    return [*tokens, _Token("end", "<EOF>", end)]


def _value(match: re.Match[str]) -> str:
    if match.lastgroup == "string":
        return match[0][1:-1]
    return match[0].removeprefix("//").strip() if match.lastgroup == "comment" else match[0]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# FTL's parser tries one token ahead: where an optional part fails after one token, the parser goes back and reports the
# failure only if nothing else fails farther on. So the deepest failure is kept.
class _Parser:
    """A parser of shapes."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.deepest: tuple[int, ScheduleError | None] = (0, None)

    def pattern(self) -> tuple[str, list[_Component]]:
        """Return the pattern as FTL shows it, and its components."""
        first = self.tokens[0]
        if first.kind == "number" and self.tokens[1].is_one_of(*_UNITS):
            short = first.text + self.tokens[1].text
            self.at = 2
            self._end()
            return short, _duration(short)
        if first.is_one_of(*_DAYS):
            self.at = 1
            self._end()
            day = _DAYS.index(first.text.capitalize())
            return first.text, [_ZERO, _ZERO, _ZERO, _ALL, _ALL, (_Step(day),), _ALL]
        components = self._components()
        self._end()
        return " ".join(",".join(map(str, each)) for each in components), components

    def _end(self) -> None:
        if self.token.kind != "end":
            depth, error = self.deepest
            raise error if error and depth > self.at else self.token.unexpected()

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def _components(self) -> list[_Component]:
        found: list[_Component] = []
        while self.token.begins_component:
            begun = self.at
            try:
                found.append(self._component())
            except ScheduleError as error:  # a number that Go cannot read
                if self.at > begun + 1:
                    raise
                # The parser has tried a duration first, and that attempt is reported.
                if not found:
                    raise self.tokens[begun + 1].unexpected('("s" | "m" | "h")') from None
                self._keep(begun + 1, error)
                self.at = begun
                break
        if not found:
            raise ScheduleError(f"{self.token.place}: sub-expression Component+ must match at least once")
        return found

    def _keep(self, depth: int, error: ScheduleError) -> None:
        if depth >= self.deepest[0]:
            self.deepest = (depth, error)

    def _component(self) -> _Component:
        steps = [self._step()]
        while self.token.is_one_of(","):
            following = self.tokens[self.at + 1]
            if not following.begins_component:
                self._keep(self.at + 1, following.unexpected("Step"))
                break
            self.at += 1
            steps.append(self._step())
        return tuple(steps)

    def _step(self) -> _Step:
        first = self.token
        self.at += 1
        start = end = None
        if first.kind == "number":
            until = self._after("-")
            start = _number(first.text, "ValueRange.Start")
            end = None if until is None else _number(until, "ValueRange.End")
        interval = self._after("/")
        return _Step(start, end, None if interval is None else _number(interval, "Step.Step"))

    def _after(self, mark: str) -> str | None:
        """Return the number after a mark, if they follow."""
        if not self.token.is_one_of(mark):
            return None
        following = self.tokens[self.at + 1]
        if following.kind != "number":
            self._keep(self.at + 1, following.unexpected("<number>"))
            return None
        self.at += 2
        return following.text


def _number(text: str, name: str) -> int:
    """Read a number as Go does: one with a leading zero is octal."""
    base = 8 if text.startswith("0") else 10
    if "." in text or (base == 8 and set(text) & set("89")):  # noqa: PLR2004 - octal
        problem = "invalid syntax"
    elif len(text.lstrip("0")) > _LONGEST or int(text, base) > _INT64:
        problem = "value out of range"
    else:
        return int(text, base)
    raise ScheduleError(f'{name}: strconv.ParseInt: parsing "{text}": {problem}')


def _duration(text: str) -> list[_Component]:
    """Read a number with a unit: that field is divided by the number, and finer ones are zero."""
    try:
        parse_duration(text)
    except PolicyValueError as error:
        raise ScheduleError(str(error)) from None
    number, unit = int(text[:-1]), _UNITS.index(text[-1])
    if not number:
        return [_ZERO] * 3 + [_ALL] * 4
    return [_ZERO] * unit + [(_Step(None, None, number),)] + [_ALL] * (6 - unit)
