"""A policy as a table, also as JSON: each retry, its wait, its time, and whether it is before the deadline. PURE.

The figures come from `redrive.policy.Policy.decide`, called as a worker would after one failure after another, on two
virtual clocks: on one every random sample is the lowest, on the other the highest. The range between them is the band.
Attempts take no time on both.

After the deadline ``decide`` returns no delay. To show which retries no longer fit, it is then called once more for a
call that starts in a thousand years, which is not past any deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from math import nextafter

import msgspec

from redrive.plan.kinds import FailureKind, kinds, parts
from redrive.plan.words import notes
from redrive.policy import Defer, Failure, GiveUp, History, Policy, Retry
from redrive.policy.algebra import Combined
from redrive.policy.duration import LONGEST, ZERO

_START = datetime(1, 1, 1, tzinfo=UTC)
_LOWEST, _HIGHEST = 0.0, nextafter(1.0, 0.0)


class InTime(StrEnum):
    """The relation of a retry to the deadline."""

    YES = "yes"
    MAYBE = "maybe"
    """Its shortest waits fit, its longest do not."""
    NO = "no"
    DEFERRED = "deferred"
    """Later than the deadline, and done all the same (``over_deadline="defer"``)."""


@dataclass(frozen=True, slots=True)
class Band:
    """A span of time that depends on jitter: the shortest, before jitter, and the longest without hints."""

    low: timedelta
    nominal: timedelta
    high: timedelta

    @property
    def certain(self) -> bool:
        """True if the span does not depend on jitter."""
        return self.low == self.nominal == self.high

    def __add__(self, other: Band) -> Band:
        return Band(self.low + other.low, self.nominal + other.nominal, self.high + other.high)


_NOW = Band(ZERO, ZERO, ZERO)


@dataclass(frozen=True, slots=True)
class Row:
    """One retry."""

    # From 1.
    retry: int
    wait: Band
    # From the first failure.
    at: Band
    in_time: InTime

    @property
    def struck(self) -> bool:
        """True if the retry never happens."""
        return self.in_time is InTime.NO


@dataclass(frozen=True, slots=True)
class Section:
    """The retries after one kind of failures."""

    name: str
    # How they are counted, or why there is no retry; may be empty.
    detail: str
    rows: tuple[Row, ...] = ()
    # What follows the last row; empty if it is the last retry.
    rest: str = ""
    # The time of the last failure, if it is known.
    ends: Band | None = None


@dataclass(frozen=True, slots=True)
class Catch:
    """The task that is called after the last failure, and the interval at which it is tried until it succeeds."""

    task: str
    every: timedelta


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The behaviour of a policy, ready to be drawn."""

    title: str
    # The worst case.
    sentence: str
    sections: tuple[Section, ...]
    catch: Catch | None
    deadline: timedelta | None
    # True if a hint can make a wait longer than drawn.
    hinted: bool
    # Remarks about what the drawing cannot show.
    notes: tuple[str, ...]


def plan_of(policy: Policy, *, title: str, retries: int = 20) -> PolicyPlan:
    """Compute the behaviour of a policy; raise `PolicyValueError` if a user's backoff returns no delay.

    At most 1000 retries of each kind of failures: a thousand waits of a thousand years are within the range of dates.
    """
    sections = [_section(policy, kind, retries) for kind in kinds(policy)]
    return PolicyPlan(
        title=title,
        sentence=policy.explain().sentence,
        sections=tuple(_merged(sections) if isinstance(policy, Combined) else sections),
        catch=None if policy.catch is None else Catch(policy.catch, policy.catch_delay),
        deadline=policy.deadline,
        hinted=any(part.hints != "ignore" for part in parts(policy)),
        notes=tuple(notes(*parts(policy))),
    )


def _section(policy: Policy, kind: FailureKind, retries: int) -> Section:
    if kind.failure is None:
        return Section(kind.name, kind.detail)
    limit = _limit(policy, kind.failure)
    found = list(islice(_rows(policy, kind.failure), retries + 1))
    rows = found[:retries]
    # Then nothing but the deadline ends it, and one retry past that is enough.
    if limit is None:
        rows = rows[: next((row.retry for row in rows if row.struck), retries)]
    if not rows:
        return Section(kind.name, _why_none(policy, kind.failure), ends=_NOW)
    rest = _rest(policy, limit) if len(found) > len(rows) and not (limit is None and rows[-1].struck) else ""
    return Section(kind.name, kind.detail, tuple(rows), rest, None if rest else _end(policy, rows))


def _rows(policy: Policy, failure: Failure) -> Iterator[Row]:
    at = _NOW
    shortest, longest = _walk(policy, failure, _LOWEST), _walk(policy, failure, _HIGHEST)
    for number, (best, worst) in enumerate(zip(shortest, longest, strict=False), 1):
        wait = Band(best.delay, worst.nominal, worst.delay)
        at += wait
        in_time = InTime.MAYBE if best.in_time is InTime.YES is not worst.in_time else best.in_time
        yield Row(number, wait, at, in_time)


@dataclass(frozen=True, slots=True)
class _Step:
    delay: timedelta
    nominal: timedelta
    in_time: InTime


def _walk(policy: Policy, failure: Failure, sample: float) -> Iterator[_Step]:
    """Yield what follows each failure, if every random sample is the same."""
    history, now = History(1, _START), _START
    while (step := _step(policy, history, failure, now, sample)) is not None:
        yield step
        history = policy.advance(history, failure, step.delay, now=now, sample=sample)
        now = min(now + step.delay, _START + LONGEST)


def _step(policy: Policy, history: History, failure: Failure, now: datetime, sample: float) -> _Step | None:
    match policy.decide(history, failure, now, sample):
        case Retry(delay, nominal, rule) if rule != "deadline":
            return _Step(delay, nominal, InTime.YES)
        case GiveUp(_, rule) if rule != "deadline":
            return None
        case late:
            unhurried = history._replace(started_at=now + LONGEST)
            retry = policy.decide(unhurried, failure, now, sample)
            if not isinstance(retry, Retry):
                return None
            return _Step(retry.delay, retry.nominal, InTime.DEFERRED if isinstance(late, Defer) else InTime.NO)


def _limit(policy: Policy, failure: Failure) -> int | None:
    """Return the number of retries that the policy allows; None for no limit."""
    index = policy.rule_for(failure)
    rule = None if index is None or isinstance(policy, Combined) else policy.rules[index]
    backoff = (rule and rule.backoff) or policy.backoff
    retries = rule.attempts - 1 if rule and rule.attempts else policy.retries
    known = [each for each in (retries, backoff.length) if each is not None]
    return min(known) if known else None


def _rest(policy: Policy, limit: int | None) -> str:
    if limit is not None:
        return f"and so on, up to retry {limit}"
    stops = policy.deadline is not None and policy.over_deadline != "defer"
    return "and so on until the deadline" if stops else "and so on without end"


def _end(policy: Policy, rows: list[Row]) -> Band | None:
    """Return the time of the last failure; None if it depends on jitter."""
    if any(row.in_time is InTime.MAYBE for row in rows):
        return None
    if rows[-1].struck and policy.deadline is not None and policy.over_deadline == "truncate":
        return Band(policy.deadline, policy.deadline, policy.deadline)
    real = [row for row in rows if not row.struck]
    return real[-1].at if real else _NOW


def _why_none(policy: Policy, failure: Failure) -> str:
    decision = policy.decide(History(1, _START), failure, _START, _LOWEST)
    if isinstance(decision, GiveUp) and decision.rule == "not_matched":
        return f"no retry: {decision.why}"
    return "no retry"


def _merged(sections: list[Section]) -> Iterator[Section]:
    """Sections that differ only in their names, as one."""
    while sections:
        first, *others = sections
        same = [each for each in others if each.rows and replace(each, name=first.name) == first]
        yield replace(first, name=", ".join(each.name for each in (first, *same)))
        sections = [each for each in others if each not in same]


def as_json(plan: PolicyPlan, policy: Policy) -> str:
    """Return the plan as one line of JSON, together with its policy."""
    worst = policy.explain()
    catch = plan.catch
    return msgspec.json.encode(
        {
            "title": plan.title,
            "sentence": plan.sentence,
            "executions": worst.executions,
            "waiting": _seconds(worst.waiting),
            "time": _seconds(worst.time),
            "deadline": _seconds(plan.deadline),
            "sections": [
                {
                    "name": section.name,
                    "detail": section.detail,
                    "retries": [_row(row) for row in section.rows],
                    "rest": section.rest,
                    "ends": None if section.ends is None else _band(section.ends),
                }
                for section in plan.sections
            ],
            "catch": None if catch is None else {"task": catch.task, "every": _seconds(catch.every)},
            "notes": plan.notes,
            "policy": policy.to_dict(),
        }
    ).decode()


def _row(row: Row) -> dict[str, object]:
    return {"retry": row.retry, "wait": _band(row.wait), "at": _band(row.at), "in_time": row.in_time}


def _band(band: Band) -> dict[str, float | None]:
    return {"low": _seconds(band.low), "nominal": _seconds(band.nominal), "high": _seconds(band.high)}


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()
