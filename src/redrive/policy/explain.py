"""What a policy comes to, for people: worst cases and a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from redrive.policy.backoff import Backoff
from redrive.policy.decider import Decider
from redrive.policy.duration import ZERO, format_duration, span
from redrive.policy.jitter import Jitter

__all__ = ["Explanation", "explain"]

_HORIZON = 10_000  # retries that are added up one by one; from there on the last delay is taken to repeat
_SHOWN = 6


class Explanation(NamedTuple):
    """The worst cases of a policy.

    Attributes:
        executions: how often the function is called at most; None if nothing bounds it.
        waiting: how long it waits in all at most, hints left aside; None if nothing bounds it.
        time: how long the whole call takes at most, hints left aside; None if nothing bounds it, for example because
        one
            attempt may take any time (no ``attempt_timeout``, no ``deadline``).
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
    executions = _executions(policy)
    waiting = _bounded(_waiting(policy), policy.deadline)
    running = _running(policy, executions)
    time = _bounded(None if waiting is None or running is None else waiting + running, policy.deadline)
    return Explanation(executions, waiting, time, _sentence(policy, executions, waiting, time))


def _executions(policy: Decider) -> int | None:
    general = _shorter(policy.retries, policy.backoff.length)
    if general is None:
        return None
    return 1 + general + sum(rule.attempts - 1 for rule in policy.rules if rule.attempts is not None)


def _waiting(policy: Decider) -> timedelta | None:
    total = _sum(policy.backoff, policy.retries, policy.jitter)
    for rule in policy.rules:
        retries = policy.retries if rule.attempts is None else rule.attempts - 1
        more = _sum(rule.backoff or policy.backoff, retries, policy.jitter)
        if rule.attempts is not None:
            total = None if total is None or more is None else total + more
        else:
            total = None if total is None or more is None else max(total, more)
    return None if total is None else span(total)


def _sum(backoff: Backoff, retries: int | None, jitter: Jitter) -> float | None:
    count = _shorter(retries, backoff.length)
    if count is None:
        return None
    delays = backoff.delays(min(count, _HORIZON))
    beyond = (count - len(delays)) * delays[-1] if delays else 0.0
    return jitter.highest(sum(delays) + beyond)


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
    if policy.deadline is not None:
        parts.append(f"ends after {format_duration(policy.deadline)} at the latest")
    elif time is not None:
        parts.append(f"takes at most {_readable(time)}")
    if policy.rules:
        parts.append(f"{len(policy.rules)} {'rule treats' if len(policy.rules) == 1 else 'rules treat'} some otherwise")
    if policy.catch is not None:
        parts.append(f"then hands over to {policy.catch}")
    return "; ".join(parts) + "."


def _waits(policy: Decider) -> str:
    wanted = _shorter(_shorter(policy.retries, policy.backoff.length), _SHOWN + 1) or 0
    delays = [_readable(span(delay)) for delay in policy.backoff.delays(wanted)]
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
    }[policy.jitter.kind]
    return shown + (", each drawn at random" if policy.backoff.draws else luck)


def _readable(value: timedelta) -> str:
    """Milliseconds for short spans, seconds for long ones."""
    unit = timedelta(milliseconds=1) if value < timedelta(minutes=1) else timedelta(seconds=1)
    return format_duration(round(value / unit) * unit)


def _shorter(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else min(a, b)
