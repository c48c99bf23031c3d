"""Combinations of policies: ``a & b``, ``a | b``, ``a >> b``.

They combine *decisions*, not fields, so that each part keeps its own candidates, limits, rules and deadline:

* ``a & b``: give up if either gives up; of two retries the later one. If the wait is longer than that of a part, that
  part is asked again with it, because of its deadline; so it is in ``a & b & c``, where all three are asked.
* ``a | b``: give up if both give up; of two retries the earlier one. (To wait until the deadline and then not to call,
  ``over_deadline="truncate"``, is to give up.)
* ``a >> b``: the decision of a until it gives up; from then on that of b. Each part counts the failures that it decided
  on: b starts at its own first retry, and a is not asked again. A call has at most the retries of a plus those of b.
  The deadline of b, too, runs from the start of the call.

These are cats-retry's join, meet and followedBy; on decisions ``&`` and ``|`` obey the laws of a distributive lattice.
``up_to``, ``cap``, ``at_least``, ``per`` and, except for ``>>``, ``take`` apply to the parts.

A result is a failure for a part with an ``on_result`` that rejects it, and for a part without ``on_result`` that names
the reason ``RESULT`` or ``BaseException`` in ``on``; any other part accepts it. ``a | b`` retries it if one part does,
``a & b`` if both do, and ``a >> b`` goes on to b when a accepts it or gives up. A result that is not retried is
returned.

The fields of a combination (``attempts``, ``deadline``, ``backoff``, ...) summarize it for display and for limits
around the call; ``decide`` does not use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.classify import On
from redrive.policy.compose import Longer, Shorter, ThenBackoff
from redrive.policy.decider import NO_WAIT, Wait
from redrive.policy.decision import Decision, Defer, GiveUp, History, Retry
from redrive.policy.duration import ZERO
from redrive.policy.failure import Failure
from redrive.policy.fields import VERSION
from redrive.policy.policy import Policy, gate
from redrive.policy.value import freeze

_N = TypeVar("_N", bound=Any)
_ANYTHING = ("builtins.BaseException",)
_NOT_MATCHED = "not_matched"


def _in_both(name: str) -> Any:  # noqa: ANN401 - a method of a policy
    """Return a method of a combination that calls the method of this name of both parts."""

    def method(self: Combined, *args: object, **kwargs: object) -> Combined:
        return self._each(lambda part: getattr(part, name)(*args, **kwargs))

    return method


class Combined(Policy):
    """Two policies and an operator."""

    _fields = ("left", "right")
    op: ClassVar[str] = ""
    left: Policy
    right: Policy

    def __init__(self, left: Policy, right: Policy) -> None:
        for part in (left, right):
            if not isinstance(part, Policy):
                raise PolicyValueError(f"{part!r} is not a Policy")
            if callable(part.on) and not self._takes_classifier(left, right):
                raise PolicyValueError("a policy with a classifier cannot be combined: let `on` name types or reasons")
        if left.stop is not None and right.stop is not None and left.stop is not right.stop:
            raise PolicyValueError("stop: both policies have an event of their own; give both the same")
        freeze(self, "left", left)
        freeze(self, "right", right)
        super().__init__(
            on=self._whole_on(),
            on_result=left.on_result or right.on_result,
            attempts=self._whole_attempts(),
            deadline=self._bound(left.deadline, right.deadline) if left.deadline_given or right.deadline_given else ...,
            attempt_timeout=_known(min, left.attempt_timeout, right.attempt_timeout),
            backoff=self._whole_backoff(_nominal(left), _nominal(right)),
            jitter=left.jitter if left.jitter == right.jitter else "full",
            rules=left.rules + right.rules,
            catch=left.catch or right.catch,
            nested=left.nested if left.nested == right.nested else "outer",
            idempotent=self._whole_idempotent(),
            budget=left.budget or right.budget if left.budget_given or right.budget_given else ...,
            breaker=left.breaker or right.breaker,
            hedge=left.hedge or right.hedge,
            on_retry=left.on_retry or right.on_retry,
            on_give_up=left.on_give_up or right.on_give_up,
            stop=left.stop if right.stop is None else right.stop,
        )

    def _takes_classifier(self, left: Policy, right: Policy) -> bool:  # noqa: ARG002 - of the parts, not of the whole
        """Return True if a part may have a classifier, because the other part does not choose candidates."""
        return False

    def _check(self) -> None:
        """Skip the check: the parts are checked already, and the fields of the whole need not bound it."""

    def _whole_on(self) -> On | None:
        left, right = self.left.on, self.right.on
        return left + right if isinstance(left, tuple) and isinstance(right, tuple) else None

    def _whole_idempotent(self) -> bool | None:
        left, right = self.left.idempotent, self.right.idempotent
        return left if left == right else False

    def _whole_attempts(self) -> int | None:
        raise NotImplementedError

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        raise NotImplementedError

    def _bound(self, left: _N | None, right: _N | None) -> _N | None:
        """Return the bound of the whole where either part may still go on."""
        return None if left is None or right is None else max(left, right)

    def wait_for(self, kind: type[BaseException], attempts: int) -> Wait:  # noqa: ARG002 - the parts decide
        """See `redrive.policy.decider.Decider.wait_for`."""
        return NO_WAIT

    def remaining(self, history: History, failure: Failure) -> int | None:  # noqa: ARG002 - a summary of both parts
        """See `redrive.policy.decider.Decider.remaining`."""
        return None if self.attempts is None else max(0, self.attempts - history.attempts)

    def decide(
        self, history: History, failure: Failure, now: datetime, sample: float, least: timedelta = ZERO
    ) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        raise NotImplementedError

    def _prepare(self) -> None:
        super()._prepare()
        left, right = self.left, self.right
        freeze(self, "parts", (self.op, left, right))
        freeze(self, "predicates", left.predicates + right.predicates)
        freeze(self, "has_functions", left.has_functions or right.has_functions)
        # A hook of both parts is called once.
        freeze(self, "retry_hooks", tuple(dict.fromkeys(left.retry_hooks + right.retry_hooks)))
        freeze(self, "give_up_hooks", tuple(dict.fromkeys(left.give_up_hooks + right.give_up_hooks)))
        # In `History.by_rule`: the counters of the left part, those of the right one, and for `>>` the number of
        # retries that the right part has granted. While it is 0 the left part is asked first.
        freeze(self, "counters", left.counters + right.counters + (self.op == ">>"))

    def _failures(self, failure: Failure) -> tuple[Failure, Failure]:
        """Return the failure as each part sees it: a result is rejected by its own predicates."""
        if failure.rejected_by is None:
            return failure, failure
        size = len(self.left.predicates)
        left = tuple([number for number in failure.rejected_by if number < size])
        right = tuple([number - size for number in failure.rejected_by if number >= size])
        return failure._replace(rejected_by=left), failure._replace(rejected_by=right)

    def _histories(self, history: History) -> tuple[History, History]:
        """Return the history as each part sees it: with its own counters."""
        left = self.left.counters
        both = left + self.right.counters
        by_rule = history.by_rule
        return history._replace(by_rule=by_rule[:left]), history._replace(by_rule=by_rule[left:both])

    def advance(self, history: History, failure: Failure, delay: timedelta, *, now: datetime, sample: float) -> History:
        """See `redrive.policy.decider.Decider.advance`: both parts have seen the failure."""
        for_left, for_right = self._histories(history)
        failure_left, failure_right = self._failures(failure)
        left = self.left.advance(for_left, failure_left, delay, now=now, sample=sample)
        right = self.right.advance(for_right, failure_right, delay, now=now, sample=sample)
        return left._replace(by_rule=_padded(left, self.left) + _padded(right, self.right))

    def to_dict(self) -> dict[str, Any]:
        """See `redrive.policy.Policy.to_dict`."""
        return {"version": VERSION, "op": self.op, "of": [self.left.to_dict(), self.right.to_dict()]}

    def _each(self, change: Callable[[Policy], Policy]) -> Self:
        return type(self)(change(self.left), change(self.right))

    def with_(self, **changes: object) -> Self:
        """Return a copy with some fields changed in both parts."""
        return self._each(lambda part: part.with_(**changes))

    def without_functions(self) -> Policy:
        """See `redrive.policy.Policy.without_functions`."""
        return self._each(lambda part: part.without_functions()) if self.has_functions else self

    def with_functions(self, of: Policy) -> Policy:
        """See `redrive.policy.Policy.with_functions`; a policy of another form has no functions for this one."""
        if type(of) is not type(self) or not isinstance(of, Combined):
            return self
        return type(self)(self.left.with_functions(of.left), self.right.with_functions(of.right))

    # These methods of a policy apply to the parts.
    in_process = _in_both("in_process")
    durable = _in_both("durable")
    take = _in_both("take")
    up_to = _in_both("up_to")
    cap = _in_both("cap")
    at_least = _in_both("at_least")
    per = _in_both("per")

    def arguments(self) -> dict[str, Any]:
        """See `redrive.policy.value.Value.arguments`."""
        return {"left": self.left, "right": self.right}

    def _key(self) -> tuple[object, ...]:
        return (self.left, self.right)

    def __repr__(self) -> str:
        return f"({self.left!r} {self.op} {self.right!r})"


class Both(Combined):
    """``a & b``."""

    op = "&"

    def _takes_classifier(self, left: Policy, right: Policy) -> bool:
        return _ANYTHING in (left.on, right.on)

    def _whole_on(self) -> On | None:
        if self.left.on == _ANYTHING:
            return self.right.on
        return self.left.on if self.right.on == _ANYTHING else super()._whole_on()

    def _whole_idempotent(self) -> bool | None:
        left, right = self.left.idempotent, self.right.idempotent
        if left is True:
            return right
        return left if right is True else super()._whole_idempotent()

    def _whole_attempts(self) -> int | None:
        return _known(min, self.left.attempts, self.right.attempts)

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        return Longer(left, right)

    def _bound(self, left: _N | None, right: _N | None) -> _N | None:
        return _known(min, left, right)

    def decide(
        self, history: History, failure: Failure, now: datetime, sample: float, least: timedelta = ZERO
    ) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        # Nested `&` count as one, and each part is asked with the longest wait of all: the order of brackets has no
        # effect. A part that waits only until its deadline does not hide a wait at which another part gives up.
        members = [*self.members(history, failure)]
        chosen: Retry | Defer | None = None
        while True:
            asked: list[Retry | Defer] = []
            ended: list[GiveUp] = []
            for part, past, seen in members:
                decision = part.decide(past, seen, now, sample, least)
                if not isinstance(decision, GiveUp):
                    asked.append(decision)
                elif failure.rejected_by is None:
                    return decision
                else:
                    ended.append(decision)
            if ended:
                # A result that one part accepts is accepted.
                return next((each for each in ended if _accepts(each, failure)), ended[0])
            before, chosen = chosen, max(asked, key=lambda each: _rank(each, now))
            longest = max((_rank(each, now)[1] for each in asked if not _rank(each, now)[0]), default=least)
            if longest <= least:
                # All parts accept the wait of this part.
                return before if before is not None and _rank(before, now) == _rank(chosen, now) else chosen
            least = longest

    def members(self, history: History, failure: Failure) -> Iterator[tuple[Policy, History, Failure]]:
        """Yield the parts that are no `&` themselves, with the history and the failure as each sees them."""
        for part, past, seen in zip(
            (self.left, self.right), self._histories(history), self._failures(failure), strict=True
        ):
            if isinstance(part, Both):
                yield from part.members(past, seen)
            else:
                yield part, past, seen


class Either(Combined):
    """``a | b``."""

    op = "|"

    def _whole_attempts(self) -> int | None:
        return self._bound(self.left.attempts, self.right.attempts)

    def _whole_backoff(self, left: Backoff, right: Backoff) -> Backoff:
        return Shorter(left, right)

    def decide(
        self, history: History, failure: Failure, now: datetime, sample: float, least: timedelta = ZERO
    ) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        for_left, for_right = self._histories(history)
        failure_left, failure_right = self._failures(failure)
        left = self.left.decide(for_left, failure_left, now, sample, least)
        right = self.right.decide(for_right, failure_right, now, sample, least)
        if isinstance(left, GiveUp):
            return left if isinstance(right, GiveUp) and not _accepts(left, failure) else right
        return left if isinstance(right, GiveUp) or _rank(right, now) >= _rank(left, now) else right


class Then(Combined):
    """``a >> b``."""

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

    def decide(
        self, history: History, failure: Failure, now: datetime, sample: float, least: timedelta = ZERO
    ) -> Decision:
        """See `redrive.policy.Policy.decide`."""
        granted, known = self._granted(history)
        for_left, for_right = self._histories(history)
        failure_left, failure_right = self._failures(failure)
        left: Decision | None = None
        if not (granted and known):
            left = self.left.decide(for_left, failure_left, now, sample, least)
            if not isinstance(left, GiveUp):
                return left
        right = self.right.decide(_own(for_right, granted), failure_right, now, sample, least)
        return left if left is not None and isinstance(right, GiveUp) and _accepts(right, failure) else right

    def advance(self, history: History, failure: Failure, delay: timedelta, *, now: datetime, sample: float) -> History:
        """See `redrive.policy.decider.Decider.advance`: only the part that was asked has seen the failure."""
        granted, known = self._granted(history)
        left, right = self._histories(history)
        failure_left, failure_right = self._failures(failure)
        asked = not (granted and known)
        if asked and not isinstance(self.left.decide(left, failure_left, now, sample, delay), GiveUp):
            left = self.left.advance(left, failure_left, delay, now=now, sample=sample)
        else:
            right = self.right.advance(_own(right, granted), failure_right, delay, now=now, sample=sample)
            granted += 1
        by_rule = (*_padded(left, self.left), *_padded(right, self.right), granted)
        return History(history.attempts + 1, history.started_at, delay, by_rule)

    def _granted(self, history: History) -> tuple[int, bool]:
        """Return the number of retries that the right part has granted, and True if the history has counted them.

        A history without counters was written by hand or for another policy. Then the earlier failures count as the
        left part's, up to its number of retries, and the left part is asked first.
        """
        if len(history.by_rule) >= self.counters:
            return history.by_rule[self.counters - 1], True
        return (0 if self._used is None else max(0, history.attempts - 1 - self._used)), False

    def take(self, n: int) -> Policy:
        """Limit the retries of both parts together to ``n``."""
        return self & gate(self, attempts=n + 1)


def _accepts(end: GiveUp, failure: Failure) -> bool:
    """Return True if a part gives up because it accepts a result, so that the other part decides."""
    return failure.rejected_by is not None and end.rule == _NOT_MATCHED


def _own(history: History, granted: int) -> History:
    """Return the history as the second part sees it: its first failure is the one that the first part gave up on."""
    return history._replace(attempts=granted + 1, last_delay=history.last_delay if granted else None)


def _padded(history: History, policy: Policy) -> tuple[int, ...]:
    """Return a part's counters, filled up to their number, so that the places of the others do not shift."""
    missing = policy.counters - len(history.by_rule)
    return history.by_rule + (0,) * missing


#: The operators on policies by their sign.
OPERATORS: Mapping[str, type[Combined]] = MappingProxyType({cls.op: cls for cls in (Both, Either, Then)})


def _nominal(policy: Policy) -> Backoff:
    """Return the nominal schedule of a policy, limits of attempts included."""
    backoff = policy.backoff.envelope
    if isinstance(policy, Combined) or policy.retries is None:
        return backoff
    return backoff.take(policy.retries)


def _known(choose: Callable[[_N, _N], _N], left: _N | None, right: _N | None) -> _N | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _rank(decision: Retry | Defer, now: datetime) -> tuple[bool, timedelta, bool]:
    """Return the order of decisions by which `&` takes the larger one of two and `|` the smaller one.

    A wait until the deadline without a call (``truncate``) is an end: it comes after all that call again, longer ones
    first. Of two equal waits the deferred one comes second.
    """
    if isinstance(decision, Defer):
        return False, decision.at - now, True
    return (True, -decision.delay, False) if decision.rule == "deadline" else (False, decision.delay, False)
