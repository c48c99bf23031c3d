"""Policies made of policies: ``a & b``, ``a | b``, ``a >> b``.

They combine *decisions*, not fields, so that each part keeps its own candidates, limits, rules and deadline:

* ``a & b``: give up if either gives up; of two retries the later one.
* ``a | b``: give up if both give up; of two retries the earlier one.
* ``a >> b``: what a says, until a gives up; then what b says. Once a's retries are used, b counts from its own first.

These are cats-retry's join, meet and followedBy; on decisions ``&`` and ``|`` obey the laws of a distributive lattice.
``take``, ``up_to``, ``cap`` and ``per`` apply to the parts, over which they distribute.

The fields of a combination (``attempts``, ``deadline``, ``backoff``, ...) are what can be said about it as a whole;
they are for people and for bounds around the call. ``decide`` never looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.codec import combined_to_dict
from redrive.policy.compose import Longer, Shorter
from redrive.policy.compose import Then as ThenBackoff
from redrive.policy.decision import Decision, Defer, GiveUp, History, Retry
from redrive.policy.duration import Duration
from redrive.policy.failure import Failure
from redrive.policy.policy import OPERATORS, Policy
from redrive.policy.value import freeze

__all__ = ["Both", "Combined", "Either", "Then"]

_N = TypeVar("_N", bound=Any)


class Combined(Policy):
    """Two policies and an operator."""

    __slots__ = ("left", "right")
    _fields = ("left", "right")
    op: ClassVar[str] = ""
    left: Policy
    right: Policy

    def __init__(self, left: Policy, right: Policy) -> None:
        for part in (left, right):
            if not isinstance(part, Policy):
                raise PolicyValueError(f"{part!r} is not a Policy")
            if callable(part.on):
                raise PolicyValueError("a policy with a classifier cannot be combined: let `on` name types or reasons")
        freeze(self, "left", left)
        freeze(self, "right", right)
        super().__init__(
            on=_names(left, right),
            on_result=left.on_result or right.on_result,
            attempts=self._whole_attempts(),
            deadline=self._bound(left.deadline, right.deadline) if left.deadline_given or right.deadline_given else ...,
            attempt_timeout=_known(min, left.attempt_timeout, right.attempt_timeout),
            backoff=self._whole_backoff(_nominal(left), _nominal(right)),
            jitter=left.jitter if left.jitter == right.jitter else "full",
            rules=left.rules + right.rules,
            catch=left.catch or right.catch,
            nested=left.nested if left.nested == right.nested else "outer",
            idempotent=left.idempotent if left.idempotent == right.idempotent else False,
            budget=left.budget or right.budget,
            breaker=left.breaker or right.breaker,
            hedge=left.hedge or right.hedge,
        )

    def _check(self) -> None:
        """The parts are checked already; as a whole they are bounded although no single field may say so."""

    def _whole_attempts(self) -> int | None:
        raise NotImplementedError

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        raise NotImplementedError

    def _bound(self, left: _N | None, right: _N | None) -> _N | None:
        """The whole of two bounds where either part may still go on."""
        return None if left is None or right is None else max(left, right)

    def decide(self, history: History, failure: Failure, now: datetime, sample: float) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        raise NotImplementedError

    def quick(self, exception: BaseException, attempts: int, elapsed: float, sample: float) -> None:
        """Never: the parts decide; see `redrive.policy.decider.Decider.quick`."""

    def _histories(self, history: History) -> tuple[History, History]:
        """The history as each part sees it: with the counts of its own rules."""
        own = len(self.left.rules)
        left = history._replace(by_rule=history.by_rule[:own])
        return left, history._replace(by_rule=history.by_rule[own:])

    def to_dict(self) -> dict[str, Any]:
        """See `redrive.policy.Policy.to_dict`."""
        return combined_to_dict(self.op, self.left.to_dict(), self.right.to_dict())

    def rule_hits(self, failure: Failure) -> list[int]:
        """See `redrive.policy.decider.Decider.rule_hits`."""
        return self.left.rule_hits(failure) + self.right.rule_hits(failure)

    def _each(self, change: Callable[[Policy], Policy]) -> Self:
        return type(self)(change(self.left), change(self.right))

    def with_(self, **changes: object) -> Self:
        """A copy with some fields changed in both parts."""
        return self._each(lambda part: part.with_(**changes))

    def in_process(self) -> Policy:
        """See `redrive.policy.Policy.in_process`."""
        return self._each(lambda part: part.in_process())

    def durable(self) -> Policy:
        """See `redrive.policy.Policy.durable`."""
        return self._each(lambda part: part.durable())

    def take(self, n: int) -> Policy:
        """See `redrive.policy.Policy.take`."""
        return self._each(lambda part: part.take(n))

    def up_to(self, total: Duration) -> Policy:
        """See `redrive.policy.Policy.up_to`."""
        return self._each(lambda part: part.up_to(total))

    def cap(self, maximum: Duration) -> Policy:
        """See `redrive.policy.Policy.cap`."""
        return self._each(lambda part: part.cap(maximum))

    def per(self, *names: type[BaseException] | str) -> Policy:
        """See `redrive.policy.Policy.per`."""
        return self._each(lambda part: part.per(*names))

    def arguments(self) -> dict[str, Any]:
        """See `redrive.policy.value.Value.arguments`."""
        return {"left": self.left, "right": self.right}

    def _key(self) -> tuple[object, ...]:
        return (self.left, self.right)

    def __repr__(self) -> str:
        return f"({self.left!r} {self.op} {self.right!r})"


class Both(Combined):
    """``a & b``."""

    __slots__ = ()
    op = "&"

    def _whole_attempts(self) -> int | None:
        return _known(min, self.left.attempts, self.right.attempts)

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        return Longer(left, right)

    def _bound(self, left: _N | None, right: _N | None) -> _N | None:
        return _known(min, left, right)

    def decide(self, history: History, failure: Failure, now: datetime, sample: float) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        for_left, for_right = self._histories(history)
        left = self.left.decide(for_left, failure, now, sample)
        if isinstance(left, GiveUp):
            return left
        right = self.right.decide(for_right, failure, now, sample)
        if isinstance(right, GiveUp):
            return right
        return right if _due(right, now) > _due(left, now) else left


class Either(Combined):
    """``a | b``."""

    __slots__ = ()
    op = "|"

    def _whole_attempts(self) -> int | None:
        return self._bound(self.left.attempts, self.right.attempts)

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        return Shorter(left, right)

    def decide(self, history: History, failure: Failure, now: datetime, sample: float) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        for_left, for_right = self._histories(history)
        left = self.left.decide(for_left, failure, now, sample)
        right = self.right.decide(for_right, failure, now, sample)
        if isinstance(left, GiveUp):
            return left if isinstance(right, GiveUp) else right
        if isinstance(right, GiveUp):
            return left
        return right if _due(right, now) < _due(left, now) else left


class Then(Combined):
    """``a >> b``."""

    __slots__ = ("_used",)
    op = ">>"
    _used: int | None

    def __init__(self, left: Policy, right: Policy) -> None:
        super().__init__(left, right)
        freeze(self, "_used", _nominal(left).length)

    def _whole_attempts(self) -> int | None:
        left, right = self.left.attempts, self.right.attempts
        return None if left is None or right is None else left + right - 1

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        return ThenBackoff(left, right)

    def decide(self, history: History, failure: Failure, now: datetime, sample: float) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        for_left, for_right = self._histories(history)
        left = self.left.decide(for_left, failure, now, sample)
        if not isinstance(left, GiveUp):
            return left
        used = self._used
        if used is not None and history.attempts > used:
            first = history.attempts == used + 1
            last_delay = None if first else history.last_delay
            for_right = for_right._replace(attempts=history.attempts - used, last_delay=last_delay)
        return self.right.decide(for_right, failure, now, sample)

    def take(self, n: int) -> Policy:
        """At most ``n`` retries: what the left leaves of them is the right's."""
        rest = 0 if self._used is None else max(0, n - self._used)
        return Then(self.left.take(n), self.right.take(rest))


OPERATORS.update({cls.op: cls for cls in (Both, Either, Then)})


def _nominal(policy: Policy) -> Backoff:
    """The schedule of a policy, limits of attempts included, without luck."""
    backoff = policy.backoff.envelope
    if isinstance(policy, Combined) or policy.retries is None:
        return backoff
    return backoff.take(policy.retries)


def _names(left: Policy, right: Policy) -> Iterable[str] | None:
    if not isinstance(left.on, tuple) or not isinstance(right.on, tuple):
        return None
    return left.on + right.on


def _known(choose: Callable[[_N, _N], _N], left: _N | None, right: _N | None) -> _N | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _due(decision: Retry | Defer, now: datetime) -> datetime:
    return now + decision.delay if isinstance(decision, Retry) else decision.at
