"""What was understood of a refresh policy in English: its sentences, its next refreshes, and a failing week. PURE."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from rich.text import Text

from redrive.drawing import Bar, Glyphs, text_line
from redrive.plan.words import wrapped
from redrive.schedule import RefreshPolicy, Schedule
from redrive.schedule.dry_run import AttemptEnd, SimulatedAnswer, SimulatedAttempt, dry_run
from redrive.schedule.english.read import Understood
from redrive.schedule.english.write import understood_sentences
from redrive.schedule.options import Exhausted

# Refreshes that are listed.
_NEXT = 5
_DAYS, _HOURS = 7, 24
# Attempts of a week that are drawn.
_MOST = 500
# Columns before a bar, and the most cells for an hour.
_HEAD, _FINEST = 8, 4


def understood(found: Understood[RefreshPolicy], begin: datetime, width: int) -> Iterator[Text]:
    """Yield the sentences that were understood, and the next planned refreshes from an instant on."""
    yield Text("understood as:")
    for sentence in sentences(found):
        yield from (Text(f"  {line}") for line in wrapped(sentence, width - 2))
    schedule = found.policy.schedule
    if schedule is not None:
        yield Text(f"next planned refreshes, in {schedule.tz}:")
        for each in itertools.islice(schedule.since(begin), _NEXT):
            yield Text(f"  {_local(schedule, each)}")


def sentences(found: Understood[RefreshPolicy]) -> Iterator[str]:
    """Yield the sentences that were understood; in brackets what they leave open, and remarks."""
    yield from understood_sentences(found)
    yield from _ending(found.policy)
    yield from (f"({each})" for each in found.remarks)


def _local(schedule: Schedule, at: datetime) -> str:
    local = at.astimezone(schedule.place)
    return f"{local:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00")


def _ending(policy: RefreshPolicy) -> Iterator[str]:
    """Yield what is done at the end, which the sentences need not have."""
    if policy.repeat_last and policy.give_up_after is None:
        yield "(it never gives up)"
    elif policy.on_exhausted is Exhausted.GIVE_UP and not policy.repeat_last:
        count = len(policy.delays) + 1
        yield f"(after {count} failed attempt{'' if count == 1 else 's'} it is disabled until an update)"


def failing_week(policy: RefreshPolicy, begin: datetime, width: int, glyphs: Glyphs) -> Iterator[Text]:
    """Yield a picture of the week from an instant on if each attempt times out: a line for each day of the schedule."""
    schedule = policy.schedule
    if schedule is None:
        return
    played = dry_run(policy, itertools.repeat(SimulatedAnswer(AttemptEnd.TIMEOUT), _MOST), start=begin)
    fine = max(min((width - _HEAD - 1) // _HOURS, _FINEST), 1)
    yield Text("a week in which each attempt times out:")
    scale = "".join(f"{hour:02}".ljust(6 * fine) for hour in range(0, _HOURS, 6))
    yield text_line(" " * (_HEAD - 2), Text(scale, "dim"))
    first = begin.astimezone(schedule.place).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    for day in (first + timedelta(days=number) for number in range(_DAYS)):
        bar = Bar(_HOURS * fine)
        spans = [_span(schedule, each, day, _HOURS * fine) for each in played.attempts]
        for first_cell, last_cell in spans:
            if first_cell < _HOURS * fine and last_cell > 0:
                bar.fill("attempt", max(first_cell, 0), min(last_cell, _HOURS * fine))
        for each, (cell, _) in zip(played.attempts, spans, strict=True):
            if each.is_planned and 0 <= cell < _HOURS * fine:
                bar.put("slot", cell, over=("", "attempt"))
        yield text_line(f"{day:%a %d}", bar.text(glyphs))
    last = played.attempts[-1].ended.astimezone(schedule.place).replace(tzinfo=None)
    if len(played.attempts) == _MOST and last < first + timedelta(days=_DAYS):
        yield Text(f"only the first {_MOST} attempts are drawn")


def _span(schedule: Schedule, attempt: SimulatedAttempt, day: datetime, cells: int) -> tuple[int, int]:
    """Return the first cell of an attempt on the wall clock of a day, and the one after its last."""
    spans = (each.astimezone(schedule.place).replace(tzinfo=None) for each in (attempt.began, attempt.ended))
    begin, end = (math.floor((each - day) / timedelta(days=1) * cells) for each in spans)
    return begin, max(end, begin + 1)
