"""The dry run of a refresh policy as a Gantt chart: its computation, and the chart as text, SVG and Mermaid. PURE.

Each attempt is a bar from its start to its end, on a line of its own; a stroke through all lines is a planned refresh,
as in the charts of the refresh-with-retry-policy document.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rich.text import Text

from redrive.drawing import BLOCKS, GAP, Bar, Glyphs, embedded, gantt, gantt_task, svg, tag, text_line
from redrive.errors import ConfigurationError, PolicyError
from redrive.plan.understood import failing_week, understood
from redrive.policy import format_duration, parse_duration
from redrive.policy.directive import NUMBERS
from redrive.schedule import RefreshPolicy
from redrive.schedule.dry_run import AttemptEnd, DryRun, SimulatedAnswer, SimulatedAttempt, dry_run
from redrive.schedule.english.read import Understood, understand

_MIDNIGHT, _HOUR = timedelta(days=1), timedelta(hours=1)
_WIDTH, _EDGE, _ROW, _NAMES = 880, 24, 26, 250
_LIGHT = {
    ".slot": "stroke: #59636e; stroke-dasharray: 3 3",
    ".success": "fill: #1a7f37",
    ".failure": "fill: #9a6700",
    ".timeout": "fill: #cf222e",
}
_DARK = {".slot": "stroke: #9198a1"}
_WORDS = {"ok": AttemptEnd.SUCCESS, "fail": AttemptEnd.FAILURE, "timeout": AttemptEnd.TIMEOUT}
_FORM = 'write "fail 4m, timeout, ok 2m": ok, fail or timeout, and how long after the start'
# Not "five 1s": that is a directive with a number in words, and the parser of directives has a message for it.
_ENGLISH = re.compile(
    rf"\s*(?:[-*•]\s|\d+[.)]\s|(?!catch\b|(?:{'|'.join(NUMBERS)})\s+\d+(?:ms|[dhms])\b)[A-Za-z]+\s+\S)", re.IGNORECASE
)
_TITLE = 60


@dataclass(frozen=True, slots=True)
class Chart:
    """A dry run to draw."""

    title: str
    found: Understood[RefreshPolicy]
    played: DryRun
    # Those of `RefreshPolicy.lint`; the SVG document does not show them.
    warnings: tuple[str, ...] = ()

    @property
    def policy(self) -> RefreshPolicy:
        """The policy."""
        return self.found.policy

    @property
    def begin(self) -> datetime:
        """The left edge."""
        return self.played.attempts[0].began

    @property
    def end(self) -> datetime:
        """The right edge: the end of the last attempt, or the next start if that is near."""
        last = self.played.attempts[-1].ended
        following = self.played.state.refresh_at
        is_near = following is not None and following - last <= max(last - self.begin, _HOUR)
        return max(last, following) if is_near and following else last

    @property
    def slots(self) -> list[datetime]:
        """The planned refreshes between the edges."""
        return [each for each in self.played.slots if each <= self.end]

    def place(self, at: datetime, width: float) -> float:
        """Return the position of an instant in a width, from 0."""
        span = max(self.end - self.begin, timedelta(seconds=1))
        return min(max((at - self.begin) / span, 0.0), 1.0) * width

    def local(self, at: datetime) -> datetime:
        """Return an instant in the time zone of the schedule."""
        return at if self.policy.schedule is None else at.astimezone(self.policy.schedule.place)

    def stamp(self, at: datetime) -> str:
        """Return an instant as text for Mermaid."""
        return f"{self.local(at):%Y-%m-%d %H:%M:%S}"

    def clock(self, at: datetime) -> str:
        """Return an instant as text, in the time zone of the schedule."""
        local = self.local(at)
        seconds = any(each.began.second or each.ended.second for each in self.played.attempts)
        clock = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
        return f"{local:%a %d} {clock}" if self.end - self.begin >= _MIDNIGHT else clock


def name(attempt: SimulatedAttempt) -> str:
    """Return the name of an attempt."""
    if attempt.number == 1:
        return "Refresh"
    return f"Scheduled refresh (retry {attempt.number - 1})" if attempt.is_planned else f"Retry {attempt.number - 1}"


def result(attempt: SimulatedAttempt) -> str:
    """Return how an attempt ended."""
    length = format_duration(attempt.ended - attempt.began)
    words = {AttemptEnd.SUCCESS: "succeeded", AttemptEnd.FAILURE: "failed", AttemptEnd.TIMEOUT: "timed out"}
    return f"{words[attempt.ending]} after {length}"


def ending(chart: Chart) -> str:
    """Return what follows the last attempt."""
    state = chart.played.state
    if state.disabled_until_update:
        actions = ", ".join(" ".join(filter(None, [each.name, each.to, each.text])) for each in chart.policy.on_give_up)
        return f"then it gives up: {state.disabled_reason}" + (f"; {actions}" if actions else "")
    if state.refresh_at is None:
        return "then nothing is planned"
    what = "the next refresh" if not state.attempt_no else f"retry {state.attempt_no}"
    return f"then {what} at {chart.clock(state.refresh_at)}"


def as_text(chart: Chart, *, width: int, glyphs: Glyphs = BLOCKS) -> Iterator[Text]:
    """Yield the lines of the chart, at most ``width`` columns wide."""
    attempts = chart.played.attempts
    heads = [f"{chart.clock(each.began)}  {name(each)}" for each in attempts]
    tails = [result(each) for each in attempts]
    left, right = max(map(len, heads)), max(map(len, tails)) + len(GAP)
    room = max(width - left - len(GAP) - right, 16)
    yield from [Text(chart.title, "bold"), Text(), *understood(chart.found, chart.begin, width), Text()]
    for attempt, head, tail in zip(attempts, heads, tails, strict=True):
        bar = Bar(room)
        for slot in chart.slots:
            bar.put("slot", round(chart.place(slot, room)))
        bar.fill("attempt", round(chart.place(attempt.began, room)), round(chart.place(attempt.ended, room)))
        yield text_line(head.ljust(left), bar.text(glyphs), f" {tail}")
    yield Text()
    if chart.played.slots:
        yield Text(f"{glyphs['slot']} a planned refresh")
    yield Text(ending(chart))
    yield from failing_week(chart.policy, chart.begin, width, glyphs)
    yield from map(Text, _warnings(chart))


def as_mermaid(chart: Chart) -> str:
    """Return the chart as a gantt diagram, with a line break at its end."""
    tags = {AttemptEnd.SUCCESS: "done", AttemptEnd.FAILURE: "", AttemptEnd.TIMEOUT: "crit"}
    tasks = []
    for each in chart.played.attempts:
        begin, end = chart.stamp(each.began), chart.stamp(each.ended)
        tasks += [gantt_task(name(each), begin, end, tags[each.ending]), gantt_task(result(each), end, end)]
    tasks += [gantt_task("planned", each, each) for each in map(chart.stamp, chart.slots)]
    head = ("dateFormat YYYY-MM-DD HH:mm:ss", "axisFormat %H:%M")
    return gantt(chart.title, head, tasks, (ending(chart), *_warnings(chart)))


def _warnings(chart: Chart) -> Iterator[str]:
    return (f"warning: {each}" for each in chart.warnings)


def as_svg(chart: Chart) -> str:
    """Return the chart as an SVG document, with a line break at its end."""
    parts, size = _drawn(chart)
    return svg("redrive-refresh", chart.title, parts, size=size, light=_LIGHT, dark=_DARK)


def as_element(chart: Chart) -> str:
    """Return the chart as an SVG element for a page with the colours in its style sheet."""
    parts, size = _drawn(chart)
    return embedded("redrive-refresh", chart.title, parts, size=size)


def _drawn(chart: Chart) -> tuple[list[str], tuple[int, int]]:
    attempts = chart.played.attempts
    top = 3 * _ROW
    height = top + _ROW * (len(attempts) + 2)
    room = _WIDTH - 2 * _EDGE - _NAMES - 150
    parts = [
        tag("text", chart.title, class_="title", x=_EDGE, y=_ROW + 8),
        *(
            tag("line", class_="slot", x1=x, x2=x, y1=top - 8, y2=top + _ROW * len(attempts))
            for each in chart.slots
            for x in [_EDGE + _NAMES + chart.place(each, room)]
        ),
    ]
    for number, each in enumerate(attempts):
        y = top + _ROW * number
        begin, end = (_EDGE + _NAMES + chart.place(at, room) for at in (each.began, each.ended))
        parts += [
            tag("text", f"{chart.clock(each.began)}  {name(each)}", x=_EDGE, y=y + 14),
            tag("rect", class_=each.ending.value, x=begin, y=y + 3, width=max(end - begin, 2.0), height=14, rx=2),
            tag("text", result(each), class_="faint", x=max(end, begin + 2) + 6, y=y + 14),
        ]
    parts.append(tag("text", ending(chart), class_="faint", x=_EDGE, y=height - _ROW // 2))
    return parts, (_WIDTH, height)


def is_english(text: str) -> bool:
    """Return True if a text consists of sentences. A directive begins with a number or with ``catch``."""
    return bool(_ENGLISH.match(text))


def chart_of(text: str, *, answers: str | None, start: datetime | None, most: int, now: datetime) -> Chart:
    """Parse a refresh policy and simulate at most so many attempts, with the given answers or only timeouts.

    A naive start is in the time zone of the schedule. Raise `ScheduleSyntaxError` if a sentence cannot be parsed, and
    `ConfigurationError` if the answers cannot be parsed or no attempt is ever started.
    """
    found = understand(text, RefreshPolicy)
    policy = found.policy
    begin = now.replace(second=0, microsecond=0) if start is None else _placed(policy, start)
    listed: Iterable[SimulatedAnswer] = (
        _read(answers) if answers is not None else itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT))
    )
    played = dry_run(policy, itertools.islice(listed, most), start=begin)
    if not played.attempts:
        raise ConfigurationError(f"nothing is ever started after {begin:%Y-%m-%d %H:%M}: the schedule has ended")
    first = text.strip().splitlines()[0].strip()
    title = re.sub(r"^(?:[-*•]|\d+[.)])\s+", "", first)
    return Chart(title if len(title) <= _TITLE else f"{title[:_TITLE]}...", found, played, policy.lint(now=begin))


def _placed(policy: RefreshPolicy, start: datetime) -> datetime:
    if start.tzinfo is not None:
        return start.astimezone(UTC)
    return start.replace(tzinfo=UTC if policy.schedule is None else policy.schedule.place).astimezone(UTC)


def _read(text: str) -> list[SimulatedAnswer]:
    found = []
    for part in text.split(","):
        word, _, after = part.strip().partition(" ")
        ending = _WORDS.get(word.lower())
        try:
            span = parse_duration(after.strip()) if after.strip() else timedelta(0)
        except PolicyError as error:
            raise ConfigurationError(f"{part.strip()!r} is not the result of an attempt: {error}") from error
        if ending is None:
            raise ConfigurationError(f"{part.strip()!r} is not the result of an attempt; {_FORM}")
        found.append(SimulatedAnswer(ending, span))
    return found
