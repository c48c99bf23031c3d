"""The words of a plan: durations, and remarks about what the drawing cannot show. PURE."""

from __future__ import annotations

from datetime import timedelta
from textwrap import wrap

from redrive.policy import Policy, format_duration
from redrive.policy.policy import only_limits
from redrive.visible import visible

_MINUTE = timedelta(minutes=1)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
# Below this, fractions of a millisecond are shown.
_FINE = 10 * _MILLISECOND
_PAST_DEADLINE = {
    "give_up": "a wait that would not end before it is not begun",
    "defer": "a later retry is deferred: handed over to something durable",
    "truncate": "a wait is cut off there, and no call follows",
}


def shown(value: timedelta) -> str:
    """Return a duration as text: to the millisecond below a minute, to the second above."""
    if value < _FINE:
        return format_duration(value)
    unit = _MILLISECOND if value < _MINUTE else _SECOND
    return format_duration(round(value / unit) * unit)


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of so many characters, broken at spaces; none if it is empty."""
    return wrap(text, width, break_on_hyphens=False)


def notes(*parts: Policy) -> list[str]:
    """Return remarks about what the drawing of a policy, or of the parts of a combination, cannot show."""
    listed = [_of_attempts(parts)]
    for part in parts:
        listed += [
            _of_hints(part),
            _of_deadline(part, "The deadline" if len(parts) == 1 else "A deadline"),
            _of_outcome(part),
            _of_smooth(part),
            _of_budget(part),
        ]
        for field in ("budget", "breaker"):
            key = getattr(part, field)
            listed.append(
                "" if key is None else f"The {field} '{visible(str(key))}' can refuse a retry that is drawn here."
            )
    if len(parts) == 1 and parts[0].rules:
        listed.append("Each part is drawn as if all failures were of its kind.")
    return [each for each in dict.fromkeys(listed) if each]


def _of_budget(policy: Policy) -> str:
    # A policy with a catch task is for jobs, which have no budget of their own.
    if policy.budget_given or policy.retries == 0 or policy.catch is not None:
        return ""
    return "In process, its own budget refuses retries if too many calls fail side by side; budget=None removes it."


def _of_attempts(parts: tuple[Policy, ...]) -> str:
    timeouts = [part.attempt_timeout for part in parts if part.attempt_timeout is not None]
    limit = f" (each may take up to {shown(min(timeouts))})" if timeouts else ""
    return f"Times count from the first failure; attempts are drawn as taking no time{limit}."


def _of_smooth(policy: Policy) -> str:
    schedules = [policy.backoff, *(rule.backoff for rule in policy.rules if rule.backoff is not None)]
    if not any(each.remembers for each in schedules):
        return ""
    return "The waits of a smooth backoff are drawn for equal random samples; real ones vary from 0s upward."


def _of_hints(policy: Policy) -> str:
    # Another part obeys.
    if only_limits(policy):
        return ""
    if policy.hints == "ignore":
        return "Hints (Retry-After) are ignored, except those that a handler raises."
    if policy.max_hint_given and policy.max_hint is not None:
        return f"A hint (Retry-After) of more than {shown(policy.max_hint)} ends the call."
    return ""


def _of_deadline(policy: Policy, what: str) -> str:
    if policy.deadline is not None:
        return f"{what} is {shown(policy.deadline)} after the start: {_PAST_DEADLINE[policy.over_deadline]}."
    if not policy.deadline_given:
        return "No deadline is named: that means 45s for a call in process, and none for a job."
    return ""


def _of_outcome(policy: Policy) -> str:
    # Only jobs have a catch task, and what is left open is allowed to them.
    if only_limits(policy) or policy.idempotent or (policy.catch is not None and policy.idempotent is None):
        return ""
    unknown = "A call whose outcome is unknown (a timeout, a lost connection)"
    if policy.idempotent is None:
        return f"{unknown} is repeated by a job, and in process only with idempotent=True."
    return f"{unknown} is not repeated."
