"""Retry decisions, in process and for durable jobs.

`Decider` is the deciding half of `redrive.policy.Policy`. A decision is a pure function of the history, the failure,
the present instant and a random sample. Its order, each step final:

1. The handler declared the failure final: give up.
2. The failure is control flow, or is not named by ``on``: give up. Without ``on``, a lasting failure is named only by
   its reason in a rule.
3. The first rule that matches takes over; its failures are counted apart.
4. The outcome is unknown, the call is not idempotent, and the reason does not allow a repetition: give up (RFC 0049).
   A called function that is declared ``idempotent=False`` makes the call so (`Failure.once`).
5. The attempts are used up: give up; no delay is computed.
6. The delay: backoff, then jitter, never below the hint.
7. The deadline: give up, defer or truncate.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from math import inf
from typing import Any, ClassVar, TypeAlias

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.classify import NEVER, Predicate, is_control_flow, matches
from redrive.policy.decision import Decision, GiveUp, History, Retry, past_deadline
from redrive.policy.duration import LONGEST, ZERO, format_duration, span
from redrive.policy.failure import Failure, names_of_class
from redrive.policy.fields import PolicySettings
from redrive.policy.known import reader_of
from redrive.policy.outcome import Hook
from redrive.policy.reason import Reason
from redrive.policy.stage import Stage
from redrive.policy.value import NamedTuple, freeze

_IN_FLIGHT = Stage.IN_FLIGHT
# Verdicts: not a candidate; a candidate without a rule; otherwise the index of the rule.
_NO = -2
_PLAIN = -1
# Samples are kept as whole numbers of this part, as the other numbers of a history are whole.
_FINE = 10**9
# The number of retries with delays that are computed when the policy is built; later delays are computed each time.
_PREPARED = 4
_new = tuple.__new__

Wait: TypeAlias = tuple[float, float]
"""The least delay and the range of the jitter above it, in seconds."""

Delay: TypeAlias = tuple[float, float, timedelta]
"""The nominal delay in seconds, the lower bound of jitter, and the nominal delay as a span."""

# An infinite wait passes every deadline, so `Plan.quick` leaves the failure to `Policy.decide`.
NO_WAIT: Wait = (inf, 0.0)


class Treatment(NamedTuple):
    """The backoff, limit and name for one kind of failure.

    A policy has one treatment for each rule and one for all other failures.
    """

    #: The value of `Retry.rule` and `GiveUp.rule`.
    name: str
    backoff: Backoff
    #: Executions; None for no limit.
    limit: int | None
    #: True if the limit is the rule's, not the policy's.
    own_limit: bool = False
    #: True if the schedule is the rule's, not the policy's.
    own_backoff: bool = False
    #: True if delays have no jitter.
    unchanged: bool = False
    #: True if jitter only makes delays longer.
    upward: bool = False
    #: Index in `History.by_rule` of the sample that the schedule keeps; None if it keeps none.
    memory: int | None = None

    @property
    def first(self) -> tuple[Delay, ...]:
        """The delays before the first retries; () for a schedule that calls a function of the user."""
        last = _PREPARED if self.limit is None else min(self.limit - 1, _PREPARED)
        delays = [self.delay(retry) for retry in range(1, last + 1)] if self.backoff.is_fixed else []
        return tuple([delay for delay in delays if delay is not None])

    def delay(self, retry: int) -> Delay | None:
        """Return the delay before a retry; None if the schedule has ended."""
        nominal = self.backoff.delay(retry)
        if nominal is None:
            return None
        # Equal numbers mean that no sample is drawn. Upward jitter is drawn even if the delay equals its floor.
        low = nominal if self.unchanged and not self.backoff.draws else self.backoff.lowest(retry)
        return nominal, -1.0 if self.upward else low, span(nominal)

    def wait(self, count: int) -> Wait:
        """Return the wait after ``count`` executions; the jitter of the policy must be full or none."""
        delay = None if self.limit is not None and count >= self.limit else self.delay(count)
        return NO_WAIT if delay is None else (delay[1], delay[0] - delay[1])

    def used_up(self, count: int) -> GiveUp:
        """Return the decision when all executions of this treatment are used."""
        if self.own_limit:
            return GiveUp(f"{count} of {self.limit} attempts failed that {self.name} allows", self.name)
        return GiveUp(f"{count} of {self.limit} attempts failed", "attempts")

    def ended(self) -> GiveUp:
        """Return the decision when the schedule has no further delay."""
        length = self.backoff.length
        return GiveUp(f"all {length} retries of the backoff are used", "backoff")


class Decider(PolicySettings):
    """The fields of a policy, and its decisions."""

    # The annotations below are of derived values.
    _fields: ClassVar[tuple[str, ...]] = PolicySettings._fields

    #: True if the deadline, ``max_hint``, or ``budget``, is not the default of the place.
    deadline_given: bool
    max_hint_given: bool
    budget_given: bool
    _treatments: tuple[Treatment, ...]
    #: For each treatment: its name, its limit, its first delays, and True if full jitter scales them.
    _heads: tuple[tuple[str, int | None, tuple[Delay, ...], bool], ...]
    _rules: tuple[frozenset[str], ...]
    #: The names that ``on`` stands for; None for a classifier.
    _names: frozenset[str] | None
    #: The indices of rules with attempts of their own.
    _apart: tuple[int, ...]
    _full: bool
    #: The number of values that this policy keeps in `History.by_rule`.
    counters: int
    #: The ``on_result`` of each policy in a combination, left to right.
    predicates: tuple[Predicate | None, ...]
    #: The ``on_retry`` and the ``on_give_up`` of all policies in a combination.
    retry_hooks: tuple[Hook, ...]
    give_up_hooks: tuple[Hook, ...]
    #: True if a field holds a function, which cannot be stored.
    has_functions: bool
    #: The operator and the two policies of a combination; None for a plain policy.
    parts: tuple[str, Any, Any] | None

    def _prepare(self) -> None:
        """Derive the values that make decisions fast, once all fields are set."""
        freeze(self, "_names", None if callable(self.on) else _widened(_EXCEPTION if self.on is None else self.on))
        freeze(self, "_rules", tuple([_widened(rule.on) for rule in self.rules]))
        freeze(self, "_apart", tuple([index for index, rule in enumerate(self.rules) if rule.attempts is not None]))
        freeze(self, "_full", self.jitter.kind == "full")
        freeze(self, "_treatments", _treatments(self))
        heads = [(each, self._full and not each.backoff.draws) for each in self._treatments]
        freeze(self, "_heads", tuple([(each.name, each.limit, each.first, scaled) for each, scaled in heads]))
        memories = {treatment.memory for treatment in self._treatments} - {None}
        freeze(self, "counters", len(self.rules) + len(memories))
        freeze(self, "predicates", (self.on_result,))
        freeze(self, "retry_hooks", () if self.on_retry is None else (self.on_retry,))
        freeze(self, "give_up_hooks", () if self.on_give_up is None else (self.on_give_up,))
        functions = self.on_result, self.on_retry, self.on_give_up, self.stop
        freeze(self, "has_functions", callable(self.on) or any(each is not None for each in functions))
        freeze(self, "parts", None)

    @property
    def retries(self) -> int | None:
        """The most retries: attempts - 1; None without a limit."""
        return None if self.attempts is None else self.attempts - 1

    def decide(  # noqa: C901, PLR0911, PLR0912 - one ordered list of reasons to stop, kept in one frame for speed
        self, history: History, failure: Failure, now: datetime, sample: float, least: timedelta = ZERO
    ) -> Decision:
        """Decide what follows a failure.

        Args:
            history: the past of the call, this failure's attempt included.
            failure: the failure.
            now: the present instant, aware.
            sample: a random number from [0, 1).
            least: lower bound of the wait, set by another part of a combination.

        Returns:
            `Retry`, `Defer` or `GiveUp`. A retry is never earlier than a hint asks.

        Raises:
            PolicyValueError: ``on`` is a classifier, and the failure did not come from `classify`; or a named backoff
                function returned an invalid delay.
        """
        # Unpacking a tuple is faster than reading its fields by name.
        types, _, reason, stage, asked, permanent, candidate, leaves, _, lasting, once = failure
        if permanent is not None:
            return GiveUp(permanent, "permanent")
        names, rules, verdict = self._names, self._rules, _PLAIN
        if names is None or candidate is not None or leaves or not types or lasting is not None:
            verdict = self._judge(failure)
            if verdict == _NO:
                return _unmatched(failure)
            if lasting is not None:
                stage = lasting.stage
        elif (names.isdisjoint(types) and reason not in names) or not NEVER.isdisjoint(types):
            return _unmatched(failure)
        elif rules:
            verdict = self._rule_of(types, reason)
        if stage is _IN_FLIGHT and not (self.idempotent and once is None) and not Reason.of(reason)[1]:
            return _unknown_outcome(once)
        rule, limit, first, is_scaled = self._heads[verdict]
        count = retry = history[0]
        if rules:
            count, retry = self._counts(verdict, history)
        if limit is not None and count >= limit:
            return self._treatments[verdict].used_up(count)
        wait = first[retry - 1] if retry <= len(first) else self._treatments[verdict].delay(retry)
        if wait is None:
            return self._treatments[verdict].ended()
        nominal, low, delay = whole = wait
        if nominal != low:
            if is_scaled:
                delay = timedelta(0, low + sample * (nominal - low))
            else:
                delay = self._draw(self._treatments[verdict], wait, retry, history, sample)
        decision: Retry = _new(Retry, (delay, whole[2], rule))
        if asked is not None:
            hinted = self._apply_hint(failure, asked, decision, sample)
            if isinstance(hinted, GiveUp):
                return hinted
            decision = hinted
        if least is not ZERO and decision.delay < least:
            decision = decision._replace(delay=least)
        deadline = self.deadline
        if deadline is not None:
            elapsed = now - history.started_at
            if elapsed + decision.delay >= deadline:
                return past_deadline(decision, now, elapsed, deadline, self.over_deadline)
        return decision

    def _rule_of(self, types: tuple[str, ...], reason: str) -> int:
        """Return the verdict on a candidate that is no exception group."""
        for index, names in enumerate(self._rules):
            if reason in names or not names.isdisjoint(types):
                return index
        return _PLAIN

    def wait_for(self, kind: type[BaseException], attempts: int) -> Wait:
        """Return the wait after this number of attempts if the class of the exception suffices for that.

        `NO_WAIT` leaves the failure to `decide`. Calls in process keep the waits; a test compares them with `decide`.
        """
        types, ordinary, _ = names_of_class(kind)
        known = reader_of(kind) is not None
        if known or not ordinary or self.rules or callable(self.on) or self._judge(Failure(types)) != _PLAIN:
            return NO_WAIT
        treatment = self._treatments[0]
        drawn_here = (self._full or treatment.unchanged) and not treatment.backoff.draws
        return treatment.wait(attempts) if drawn_here else NO_WAIT

    def _draw(
        self, treatment: Treatment, wait: tuple[float, float, timedelta], retry: int, history: History, sample: float
    ) -> timedelta:
        """Return the delay with jitter, or as drawn by a backoff that draws."""
        if treatment.backoff.draws:
            previous = None if history.last_delay is None else history.last_delay.total_seconds()
            kept = 0 if treatment.memory is None else (*history.by_rule[treatment.memory :], 0)[0]
            return span(treatment.backoff.draw(retry, previous, sample, (kept - 1) / _FINE if kept else None))
        return span(self.jitter.apply(wait[0], sample, wait[1]))

    def _apply_hint(self, failure: Failure, asked: timedelta, decision: Retry, sample: float) -> Retry | GiveUp:
        """Apply a hint: a lower bound, or a replacement of the backoff if the handler set it (`RetryAfter`)."""
        dictated = failure.reason == "RETRY_AFTER"
        if self.hints == "ignore" and not dictated:
            return decision
        hint = min(asked, LONGEST)
        # The default bounds what servers send, and not what a handler decides.
        is_bounded = self.max_hint_given or not dictated
        if is_bounded and self.max_hint is not None and hint > self.max_hint:
            why = f"asked to wait {format_duration(hint)}, longer than max_hint={format_duration(self.max_hint)}"
            return GiveUp(why, "hint")
        if hint <= decision.delay and not dictated:
            return decision
        if self.jitter.is_upward:
            hint = max(hint, span(self.jitter.without_limit().apply(hint.total_seconds(), sample)))
        return Retry(max(hint, ZERO), decision.nominal, "hint")

    def remaining(self, history: History, failure: Failure) -> int | None:
        """Return the number of attempts that follow a failure if all of them fail alike; None without a limit.

        The deadline is not considered.
        """
        rule = self.rule_for(failure)
        verdict = _PLAIN if rule is None else rule
        treatment = self._treatments[verdict]
        count, retry = self._counts(verdict, history) if self.rules else (history.attempts, history.attempts)
        length = treatment.backoff.length
        bounds = [] if treatment.limit is None else [treatment.limit - count]
        bounds += [] if length is None else [length - retry + 1]
        return max(0, min(bounds)) if bounds else None

    def _judge(self, failure: Failure) -> int:
        if not NEVER.isdisjoint(failure.types) or (failure.leaves and is_control_flow(failure)):
            return _NO
        candidate = failure.candidate
        if candidate is None:
            if callable(self.on):
                message = (
                    "`on` is a classifier, which needs the exception: pass what policy.classify(exception) returns"
                )
                raise PolicyValueError(message)
            names = None if self.on is None else self._names
            candidate = matches(names, self.groups, failure) or (names is None and self._singled_out(failure))
        elif failure.rejected_by is not None:
            candidate = self._rejects(failure)
        if not candidate:
            return _NO
        rule = self.rule_for(failure)
        return _PLAIN if rule is None else rule

    def _singled_out(self, failure: Failure) -> bool:
        """Return True if a rule names the reason of a lasting failure, which ``on`` then need not name."""
        return failure.lasting is not None and any(failure.reason in names for names in self._rules)

    def _rejects(self, failure: Failure) -> bool:
        """Return True if a result that some part of a combination rejects is a failure for this part."""
        if self.on_result is not None:
            return bool(failure.rejected_by)
        return not callable(self.on) and matches(None if self.on is None else self._names, self.groups, failure)

    def _counts(self, verdict: int, history: History) -> tuple[int, int]:
        """Return the executions that count against the limit, and the number of the next retry of the backoff."""
        earlier = history.by_rule
        general = history.attempts
        for index in self._apart:
            general -= earlier[index] if index < len(earlier) else 0
        # Counts of another policy may not fit.
        general = max(1, general)
        if verdict == _PLAIN:
            return general, general
        own = (earlier[verdict] if verdict < len(earlier) else 0) + 1
        _, _, _, own_limit, own_backoff, *_ = self._treatments[verdict]
        return (own if own_limit else general), (own if own_backoff else general)

    def rule_for(self, failure: Failure) -> int | None:
        """Return the index of the rule that a failure matches, or None."""
        for index, names in enumerate(self._rules):
            if matches(names, self.groups, failure):
                return index
        return None

    def advance(
        self,
        history: History,
        failure: Failure,
        delay: timedelta,
        *,
        now: datetime,  # noqa: ARG002 - only a combination reports which of its parts decided
        sample: float,
    ) -> History:
        """Return the history of the next attempt, after this failure was retried."""
        by_rule = history.by_rule
        if self.counters:
            by_rule = self._counted(by_rule, failure, sample)
        return _new(History, (history.attempts + 1, history.started_at, delay, by_rule))

    def _counted(self, by_rule: tuple[int, ...], failure: Failure, sample: float) -> tuple[int, ...]:
        """Return the numbers that this policy keeps, after a failure."""
        kept = [*by_rule[: self.counters], *(0,) * (self.counters - len(by_rule))]
        rule = self.rule_for(failure)
        if rule is not None:
            kept[rule] += 1
        memory = self._treatments[_PLAIN if rule is None else rule].memory
        if memory is not None:
            kept[memory] = 1 + int(sample * _FINE)
        return tuple(kept)


_EXCEPTION = ("builtins.Exception",)


def _widened(names: tuple[str, ...]) -> frozenset[str]:
    """Return names as a set; every exception that is no control flow matches ``BaseException``."""
    return frozenset(names + _EXCEPTION if "builtins.BaseException" in names else names)


def _treatments(policy: Decider) -> tuple[Treatment, ...]:
    """Return one treatment for each rule and one for all other failures."""
    free = count(len(policy.rules))
    jitter = {"unchanged": policy.jitter.kind == "none", "upward": policy.jitter.is_upward}
    general = next(free) if policy.backoff.remembers else None
    treatments = []
    for position, rule in enumerate(policy.rules, 1):
        own = next(free) if rule.backoff is not None and rule.backoff.remembers else None
        treatment = Treatment(
            rule.name(position),
            rule.backoff or policy.backoff,
            rule.attempts or policy.attempts,
            own_limit=rule.attempts is not None,
            own_backoff=rule.backoff is not None,
            memory=general if rule.backoff is None else own,
            **jitter,
        )
        treatments.append(treatment)
    return (*treatments, Treatment("backoff", policy.backoff, policy.attempts, memory=general, **jitter))


def _unmatched(failure: Failure) -> GiveUp:
    for each in (failure, *failure.leaves):
        if each.lasting is not None and each.lasting.why:
            return GiveUp(each.lasting.why, "not_matched")
    what = failure.error_type.removeprefix("builtins.") or failure.reason
    if failure.error_type and failure.reason != "ERROR":
        what = f"{failure.reason} ({what})"
    return GiveUp(f"{what} is not one of the failures that this policy retries", "not_matched")


_UNKNOWN = "it is unknown whether the call took effect, and it may not be repeated because "


def _unknown_outcome(once: str | None) -> GiveUp:
    """Return the decision after a failure in flight; ``once`` is the function that is declared not idempotent."""
    if once is not None:
        return GiveUp(f"{_UNKNOWN}{once} is declared idempotent=False", "not_idempotent")
    return GiveUp(f"{_UNKNOWN}it is not idempotent; idempotent=True allows that", "not_idempotent")
