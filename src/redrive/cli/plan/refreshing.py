"""``redrive plan "- Refresh the model every 2 hours ..."``: the dry run of a refresh policy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from redrive.cli.plan.gantt import Chart
from redrive.errors import ConfigurationError, PolicyError
from redrive.policy import parse_duration
from redrive.schedule import RefreshPolicy
from redrive.schedule.dry_run import AttemptEnd, SimulatedAnswer, dry_run

_WORDS = {"ok": AttemptEnd.SUCCESS, "fail": AttemptEnd.FAILURE, "timeout": AttemptEnd.TIMEOUT}
_FORM = 'write "fail 4m, timeout, ok 2m": ok, fail or timeout, and how long after the start'
_ENGLISH = re.compile(r"\s*(?:[-*•]\s|\d+[.)]\s|(?!catch\b)[A-Za-z]+\s+\S)")
_TITLE = 60


def is_english(text: str) -> bool:
    """Return True if a text consists of sentences. A directive begins with a number or with ``catch``."""
    return bool(_ENGLISH.match(text))


def chart_of(text: str, *, answers: str | None, start: datetime | None, most: int, now: datetime) -> Chart:
    """Parse a refresh policy and run it dry.

    Args:
        text: its sentences.
        answers: the results of its attempts; by default each of them times out, until the policy gives up.
        start: its begin, naive in the time zone of its schedule, or aware; by default now.
        most: the maximum number of attempts.
        now: the present instant.

    Raises:
        ScheduleSyntaxError: a sentence cannot be parsed.
        ConfigurationError: the answers cannot be parsed, or no attempt is ever started.
    """
    policy = RefreshPolicy.parse(text)
    begin = now.replace(second=0, microsecond=0) if start is None else _placed(policy, start)
    listed: Iterable[SimulatedAnswer] = (
        _read(answers) if answers is not None else itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT))
    )
    played = dry_run(policy, itertools.islice(listed, most), start=begin)
    if not played.attempts:
        raise ConfigurationError(f"nothing is ever started after {begin:%Y-%m-%d %H:%M}: the schedule has ended")
    first = text.strip().splitlines()[0].strip()
    title = re.sub(r"^(?:[-*•]|\d+[.)])\s+", "", first)
    return Chart(title if len(title) <= _TITLE else f"{title[:_TITLE]}...", policy, played, policy.lint(now=begin))


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
