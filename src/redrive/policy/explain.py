"""Descriptions of policies: worst cases and a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from redrive.policy.backoff_kinds import Exponential
from redrive.policy.bounds import least, limit_of, worst
from redrive.policy.decider import Decider
from redrive.policy.duration import ZERO, format_duration, span

__all__ = ["Explanation", "explain"]

_SHOWN = 6
_AT_ONCE = Exponential(0)


class Explanation(NamedTuple):
    """The worst cases of a policy.

    Attributes:
        executions: the most calls of the function; None if unbounded.
        waiting: the longest total wait, without hints; None if unbounded.
        time: the longest duration of the whole call, without hints; None if unbounded, for example because one attempt
            may take any time (no ``attempt_timeout``, no ``deadline``).
        sentence: the same in words.
    """

    executions: int | None
    waiting: timedelta | None
    time: timedelta | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def explain(policy: Decider) -> Explanation:
    """See `redrive.policy.Policy.explain`."""
    retries, seconds = worst(policy)
    executions = None if retries is None else retries + 1
    waiting = None if seconds is None else span(seconds)
    running = _running(policy, executions)
    limit = limit_of(policy)
    time = _bounded(None if waiting is None or running is None else waiting + running, limit)
    return Explanation(executions, waiting, time, _sentence(policy, executions, waiting, time))


def _running(policy: Decider, executions: int | None) -> timedelta | None:
    if policy.attempt_timeout is None or executions is None:
        return None
    return span(min(policy.attempt_timeout.total_seconds() * executions, 1e15))


def _bounded(value: timedelta | None, deadline: timedelta | None) -> timedelta | None:
    if value is None or deadline is None:
        return deadline if value is None else value
    return min(value, deadline)


def _sentence(policy: Decider, executions: int | None, waiting: timedelta | None, time: timedelta | None) -> str:
    times = {None: "any number of times", 1: "once"}.get(executions, f"up to {executions} times")
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
    if sign == "&" and right.backoff == _AT_ONCE:  # it only limits
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
    luck = {
        "none": "",
        "full": ", each drawn between nothing and that",
        "equal": ", each drawn between half and all of that",
        "plus": f", each with up to {policy.jitter.fraction:.0%} on top",
        "added": f", each with up to {_readable(span(policy.jitter.span))} on top",
    }[policy.jitter.kind]
    return shown + (", each drawn at random" if policy.backoff.draws else luck)


def _readable(value: timedelta) -> str:
    """Return a span as text: milliseconds for short spans, seconds for long ones."""
    unit = timedelta(milliseconds=1) if value < timedelta(minutes=1) else timedelta(seconds=1)
    return format_duration(round(value / unit) * unit)
