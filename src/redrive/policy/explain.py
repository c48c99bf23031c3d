"""Descriptions of policies: worst cases and a sentence.

The bounds hold for every sequence of failures. Attempts take no time, and any jitter is possible. For a policy without
rules the bound is reached. With rules or operators several counts run at once, so the bound may be larger than any
single sequence. Hints are not included: only ``max_hint`` and the deadline limit them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import accumulate, zip_longest
from typing import TypeVar

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.backoff_kinds import Exponential
from redrive.policy.decider import Decider
from redrive.policy.duration import LONGEST, LONGEST_WAIT, ZERO, format_duration, span
from redrive.policy.fields import Rule
from redrive.policy.value import NamedTuple

_N = TypeVar("_N", int, float)
# Retries that are added up one by one; from there on the last delay is taken to repeat.
_HORIZON = 10_000


class Worst(NamedTuple):
    """Bounds of one call."""

    #: The most retries; None if unbounded.
    retries: int | None
    #: The longest total wait in seconds; None if unbounded.
    waiting: float | None


def worst(policy: Decider) -> Worst:
    """Return the bounds of a policy or of a combination, deadlines included."""
    found = _simple(policy) if policy.parts is None else _combined(policy, *policy.parts)
    limit = limit_of(policy)
    return found._replace(waiting=least(found.waiting, None if limit is None else limit.total_seconds()))


def refuse_endless(policy: Decider) -> None:
    """Raise `PolicyValueError` if the waits of a policy with a limit of attempts add up to more than `LONGEST_WAIT`."""
    found = worst(policy)
    if found.retries is None or found.waiting is None or found.waiting <= LONGEST_WAIT.total_seconds():
        return
    years = found.waiting / timedelta(days=365.25).total_seconds()
    raise PolicyValueError(
        f"{found.retries + 1:,} attempts would go on for {years:,.0f} years, and the longest wait is 50: give fewer, "
        "shorter delays, or a deadline"
    )


def limit_of(policy: Decider) -> timedelta | None:
    """Return the deadline that no wait of a policy passes; None if there is none."""
    if policy.parts is None:
        return policy.deadline
    sign, *parts = policy.parts
    limits = [_strict_limit(part) for part in parts]
    known = [limit for limit in limits if limit is not None]
    if sign == "&":
        return min(known, default=None)
    return max(known) if len(known) == len(limits) else None


def _strict_limit(policy: Decider) -> timedelta | None:
    """Return the limit of a part; a part that defers does not keep the other part from waiting longer."""
    return limit_of(policy) if policy.parts is not None or policy.over_deadline != "defer" else None


# ------------------------------------------------------------------------------------------------------- one policy

# Each retry of the general count has a place, its number. At each place the longest delay is taken that any treatment
# could use there: the policy's own for that number, or that of a rule with a count of at most that number. A rule with
# its own limit adds its own retries. Without a backoff of its own it takes the policy's, at the place that the other
# failures have reached.


def _simple(policy: Decider) -> Worst:
    ruled = [rule for rule in policy.rules if rule.attempts is None and rule.backoff is not None]
    retries = policy.retries
    lengths = [policy.backoff.length, *(rule.backoff.length for rule in ruled if rule.backoff is not None)]
    ends = [length for length in lengths if length is not None]
    if len(ends) == len(lengths):
        retries = least(retries, sum(ends))
    waiting = _total(_places(policy, retries), retries)
    for rule in policy.rules:
        if rule.attempts is not None:
            more = _apart(policy, rule, rule.attempts - 1, retries)
            retries = None if retries is None else retries + (more.retries or 0)
            waiting = None if waiting is None or more.waiting is None else waiting + more.waiting
    return Worst(retries, waiting)


def _apart(policy: Decider, rule: Rule, limit: int, general: int | None) -> Worst:
    """Return the retries and the wait that a rule with its own limit adds."""
    if rule.backoff is not None:
        count = least(limit, rule.backoff.length) or 0
        return Worst(count, _total(_delays(policy, rule.backoff, count), count))
    place = _delays(policy, policy.backoff, None if general is None else general + 1)
    return Worst(limit, None if place is None or general is None else limit * max(place, default=0.0))


def _places(policy: Decider, retries: int | None) -> list[float] | None:
    """Return the longest delay at each place of the general count, in seconds; None if unbounded."""
    columns = [_delays(policy, policy.backoff, retries)]
    for rule in policy.rules:
        if rule.attempts is None and rule.backoff is not None:
            delays = _delays(policy, rule.backoff, retries)
            columns.append(None if delays is None else list(accumulate(delays, max)))
    known = [column for column in columns if column is not None]
    return _widest(known) if len(known) == len(columns) else None


def _delays(policy: Decider, backoff: Backoff, retries: int | None) -> list[float] | None:
    """Return the longest delay of a schedule at each of its own numbers, jitter included."""
    count = _HORIZON if retries is None else min(retries, _HORIZON)
    delays = backoff.delays(count)
    if backoff.draws:
        if backoff.longest is None:
            return None
        # The delay before, from which it draws, may have been a rule's.
        if policy.rules:
            delays = [backoff.longest] * len(delays)
    return [policy.jitter.highest(delay) for delay in delays]


# ----------------------------------------------------------------------------------------------------- combinations


def _combined(policy: Decider, sign: str, left: Decider, right: Decider) -> Worst:
    # `a & b` grants what both grant: the fewer retries, the longer delays. `a | b` and `a >> b` grant what either
    # grants. Each part's own delays bound its share, since no count of a part grants twice.
    one, other = worst(left), worst(right)
    both = None if one.waiting is None or other.waiting is None else one.waiting + other.waiting
    if sign == ">>":
        return Worst(_sum(one.retries, other.retries), both)
    if sign == "&":
        retries = least(one.retries, other.retries)
    elif policy.rules:  # what one part grants leaves room under the other's own counts
        retries = _sum(one.retries, other.retries)
    else:
        retries = None if one.retries is None or other.retries is None else max(one.retries, other.retries)
    return Worst(retries, least(both, _total(_ceilings(policy, retries), retries)))


def _ceilings(policy: Decider, retries: int | None) -> list[float] | None:
    """Return the longest delay at each retry of a combination after any history; None if unbounded."""
    if policy.parts is None:
        own = retries if policy.retries is None else least(retries, policy.retries)
        if policy.backoff.draws:
            count = _HORIZON if own is None else min(own, _HORIZON)
            return None if policy.backoff.longest is None or policy.rules else [policy.backoff.longest] * count
        if any(rule.attempts is not None for rule in policy.rules):
            # The place of such a retry is not its number.
            return None
        return _places(policy, own)
    sign, left, right = policy.parts
    one, other = _ceilings(left, retries), _ceilings(right, retries)
    if one is None or other is None:
        return None
    if sign == ">>":
        other = list(accumulate(other, max))
    if sign == "|" and _alike(left, right):
        shared = min(len(one), len(other))
        return [min(pair) for pair in zip(one, other, strict=False)] + one[shared:] + other[shared:]
    return _widest([one, other])


def _alike(left: Decider, right: Decider) -> bool:
    """Return True if two parts accept the same failures, so that the earlier of two retries always applies."""
    fields = ("parts", "on", "groups", "idempotent", "deadline", "over_deadline", "rules")
    return not left.rules and left.parts is None and all(getattr(left, f) == getattr(right, f) for f in fields)


# ---------------------------------------------------------------------------------------------------------- numbers


def _widest(columns: Iterable[list[float]]) -> list[float]:
    return [max(place) for place in zip_longest(*columns, fillvalue=0.0)]


def _total(delays: list[float] | None, count: int | None) -> float | None:
    if delays is None or count is None:
        return None
    beyond = max(0, count - _HORIZON) * delays[-1] if len(delays) >= _HORIZON else 0.0
    return sum(delays) + beyond


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def least(one: _N | None, other: _N | None) -> _N | None:
    """Return the smaller of two bounds, of which either may be None."""
    if one is None:
        return other
    return one if other is None else min(one, other)


_SHOWN = 6
# Executions that no call reaches: the policy has such a limit where one is required.
_UNLIMITED = 10**9
_AT_ONCE = Exponential(0)


class Explanation(NamedTuple):
    """The worst cases of a policy."""

    #: The most calls of the function; None if unbounded.
    executions: int | None
    #: The longest total wait, without hints; None if unbounded, or longer than a thousand years.
    waiting: timedelta | None
    #: The longest duration of the whole call, without hints; None if unbounded, for example because one attempt may
    #: take any time (no ``attempt_timeout``, no ``deadline``).
    time: timedelta | None
    #: The bounds in words.
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def explain(policy: Decider) -> Explanation:
    """See `redrive.policy.Policy.explain`."""
    retries, seconds = worst(policy)
    executions = None if retries is None else retries + 1
    waiting = _total_span(seconds)
    running = _running(policy, executions)
    limit = limit_of(policy)
    time = _bounded(None if waiting is None or running is None else waiting + running, limit)
    return Explanation(executions, waiting, time, _sentence(policy, executions, waiting, time))


def _running(policy: Decider, executions: int | None) -> timedelta | None:
    if policy.attempt_timeout is None or executions is None:
        return None
    return _total_span(policy.attempt_timeout.total_seconds() * executions)


def _total_span(seconds: float | None) -> timedelta | None:
    # One delay is cut to the longest one; a sum that is longer has no useful bound.
    return None if seconds is None or seconds > LONGEST.total_seconds() else span(seconds)


def _bounded(value: timedelta | None, deadline: timedelta | None) -> timedelta | None:
    if value is None or deadline is None:
        return deadline if value is None else value
    return min(value, deadline)


def _sentence(policy: Decider, executions: int | None, waiting: timedelta | None, time: timedelta | None) -> str:
    times = "once" if executions == 1 else f"up to {executions} times"
    if executions is None or executions >= _UNLIMITED:
        times = "any number of times"
    parts = [f"Calls {times}"]
    if executions != 1:
        parts.append(f"waits {_waits(policy)}")
        if waiting is not None and waiting > ZERO:
            parts.append(f"at most {_readable(waiting)} of waiting in all")
    limit = limit_of(policy)
    if limit is not None:
        parts.append(f"ends after {format_duration(limit)} at the latest")
    elif time is not None:
        parts.append(f"takes at most {_readable(time)}")
    if policy.rules:
        parts.append(f"{len(policy.rules)} {'rule treats' if len(policy.rules) == 1 else 'rules treat'} some otherwise")
    if policy.catch is not None:
        parts.append(f"then hands over to {policy.catch}")
    return "; ".join(parts) + "."


_JOINED = {"&": "the longer of ({}) and ({})", "|": "the shorter of ({}) and ({})", ">>": "({}), after that ({})"}


def _waits(policy: Decider) -> str:
    """Return the delays of a policy as text; for a combination those of its parts."""
    if policy.parts is None:
        return _own_waits(policy)
    sign, left, right = policy.parts
    # The right part is a limit only.
    if sign == "&" and right.backoff == _AT_ONCE:
        return _waits(left)
    return _JOINED[sign].format(_waits(left), _waits(right))


def _own_waits(policy: Decider) -> str:
    wanted = least(least(policy.retries, policy.backoff.length), _SHOWN + 1) or 0
    delays = [_readable(span(delay)) for delay in policy.backoff.delays(wanted)]
    if not delays:
        return "not at all"
    if len(delays) > 1 and len(set(delays)) == 1:
        shown = f"{delays[0]} each time"
    elif len(delays) > _SHOWN:
        tail = "then " + delays[-1] + " each time" if delays[-1] == delays[-2] else "and so on"
        shown = ", ".join([*delays[:_SHOWN], tail])
    else:
        shown = ", ".join(delays)
    drawn = {
        "none": "",
        "full": ", each drawn between nothing and that",
        "equal": ", each drawn between half and all of that",
        "plus": f", each with up to {policy.jitter.fraction:.0%} on top",
        "added": f", each with up to {_readable(span(policy.jitter.span))} on top",
    }[policy.jitter.kind]
    if policy.jitter.within is not None:
        drawn += f", at most {_readable(span(policy.jitter.within))}"
    return shown + (", each drawn at random" if policy.backoff.draws else drawn)


def _readable(value: timedelta) -> str:
    """Return a span as text: milliseconds for short spans, seconds for long ones."""
    unit = timedelta(milliseconds=1) if value < timedelta(minutes=1) else timedelta(seconds=1)
    return format_duration(round(value / unit) * unit)
