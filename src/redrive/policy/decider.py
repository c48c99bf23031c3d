"""Retry decisions, in process and for durable jobs.

`Decider` is the deciding half of `redrive.policy.Policy`. A decision is a pure function of the history, the failure,
the present instant and a random sample. Its order, each step final:

1. The handler declared the failure final: give up.
2. The failure is control flow, or is not named by ``on``: give up.
3. The first rule that matches takes over; its failures are counted apart.
4. The outcome is unknown, the call is not idempotent, and the reason does not allow a repetition: give up (RFC 0049).
5. The attempts are used up: give up; no delay is computed.
6. The delay: backoff, then jitter, never below the hint.
7. The deadline: give up, defer or truncate.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from math import inf

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.classify import Classifier, Predicate, is_control_flow, matches
from redrive.policy.decision import Decision, GiveUp, History, Retry, past_deadline
from redrive.policy.duration import LONGEST, ZERO, format_duration, span
from redrive.policy.failure import Failure, Stage, names_of_class
from redrive.policy.fields import FIELDS
from redrive.policy.jitter import Jitter
from redrive.policy.reason import Reason
from redrive.policy.rule import Rule
from redrive.policy.treatment import NO_WAIT, REMEMBERED, Delay, Memo, Treatment, Wait
from redrive.policy.value import Value, freeze

__all__ = ["Decider"]

_IN_FLIGHT = Stage.IN_FLIGHT
# Verdicts: not a candidate; a candidate without a rule; otherwise the index of the rule.
_NO = -2
_PLAIN = -1
_REMEMBERED = 1024
# Samples are kept as whole numbers of this part, as the other numbers of a history are whole.
_FINE = 10**9
_new = tuple.__new__


class Decider(Value):
    """The fields of a policy, and its decisions."""

    __slots__ = (*FIELDS, "deadline_given", "_by_reason", "_full", "_kept", "_memo", "_names", "_room", "_treatments")
    on: tuple[str, ...] | Classifier | None
    on_result: Predicate | None
    attempts: int | None
    deadline: timedelta | None
    deadline_given: bool
    attempt_timeout: timedelta | None
    backoff: Backoff
    jitter: Jitter
    rules: tuple[Rule, ...]
    catch: str | None
    hints: str
    max_hint: timedelta | None
    over_deadline: str
    nested: str
    groups: str
    idempotent: bool | None
    budget: object
    breaker: object
    hedge: object
    _names: frozenset[str] | None
    _treatments: tuple[Treatment, ...]
    _memo: Memo
    _by_reason: bool
    _full: bool
    _kept: int
    _room: float

    def _prepare(self) -> None:
        """Derive the values that make decisions fast, once all fields are set."""
        freeze(self, "_names", frozenset(self.on) if isinstance(self.on, tuple) else None)
        named = [*(self._names or ()), *(name for rule in self.rules for name in rule.on)]
        freeze(self, "_by_reason", any("." not in name for name in named))
        freeze(self, "_full", self.jitter.kind == "full")
        freeze(self, "_room", inf if self.deadline is None else self.deadline.total_seconds())
        freeze(self, "_treatments", _treatments(self))
        freeze(self, "_memo", Memo(self._treatments))
        memories = {treatment.memory for treatment in self._treatments} - {None}
        freeze(self, "_kept", len(self.rules) + len(memories))

    @property
    def retries(self) -> int | None:
        """The most retries: attempts - 1; None without a limit."""
        return None if self.attempts is None else self.attempts - 1

    @property
    def parts(self) -> tuple[str, Decider, Decider] | None:
        """The operator and the two policies of a combination; None for a plain policy."""
        return None

    def decide(  # noqa: C901, PLR0912 - one ordered list of reasons to stop, kept in one frame for speed
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
        if failure.permanent is not None:
            return GiveUp(failure.permanent, "permanent")
        if failure.candidate is None and not failure.leaves:
            verdict = self._memo.verdicts.get((failure.types, failure.reason) if self._by_reason else failure.types)
            if verdict is None:
                verdict = self._remember(failure)
        else:
            verdict = self._judge(failure)
        if verdict == _NO:
            return _unmatched(failure)
        if failure.stage is _IN_FLIGHT and not self.idempotent and not Reason.of(failure.reason)[1]:
            return _UNKNOWN_OUTCOME
        treatment = self._treatments[verdict]
        count = retry = history.attempts
        if self.rules:
            count, retry = self._counts(verdict, history)
        if treatment.limit is not None and count >= treatment.limit:
            return treatment.used_up(count)
        wait = self._memo.delays[verdict].get(retry) or self._delay(verdict, retry)
        if wait is None:
            return treatment.ended()
        nominal, low, whole = wait
        if nominal == low:
            delay = whole
        elif self._full and not treatment.backoff.draws:
            delay = timedelta(0, low + sample * (nominal - low))
        else:
            delay = self._draw(treatment, wait, retry, history, sample)
        decision: Retry = _new(Retry, (delay, whole, treatment.name))
        if failure.hint is not None:
            hinted = self._apply_hint(failure, failure.hint, decision, sample)
            if isinstance(hinted, GiveUp):
                return hinted
            decision = hinted
        if decision.delay < least:
            decision = decision._replace(delay=least)
        if self.deadline is not None:
            elapsed = now - history.started_at
            if elapsed + decision.delay >= self.deadline:
                return past_deadline(decision, now, elapsed, self.deadline, self.over_deadline)
        return decision

    def _delay(self, verdict: int, retry: int) -> Delay | None:
        """Compute the delay of a treatment before a retry, and keep it if it is one of the first."""
        delay = self._treatments[verdict].delay(retry)
        if delay is not None and retry <= REMEMBERED:
            self._memo.delays[verdict][retry] = delay
        return delay

    def quick(self, exception: BaseException, attempts: int, elapsed: float, sample: float) -> float | None:
        """Return the seconds to wait in the common case, without building a history and a decision; None: use `decide`.

        The answer depends on the class of the exception, the number and the time only; a test compares it with
        `decide`.
        """
        try:
            low, spread = self._memo.waits[type(exception)][attempts]
        except KeyError:
            low, spread = self._learn(type(exception), attempts)
        if (
            exception.__cause__ is not None
            or getattr(exception, "hint", None) is not None
            or getattr(exception, "retry_after", None) is not None
        ):
            return None
        delay = low + sample * spread
        return delay if elapsed + delay < self._room else None

    def _learn(self, kind: type[BaseException], attempts: int) -> Wait:
        """Compute the wait after this number of attempts for a class of exceptions, and keep it for `quick`."""
        waits = self._memo.waits.get(kind)
        if waits is None:
            if len(self._memo.waits) >= _REMEMBERED:
                self._memo.waits.clear()
            waits = self._memo.waits[kind] = {}
        wait = self._treatments[0].wait(attempts) if self._is_simple(kind) else NO_WAIT
        if attempts <= REMEMBERED:
            waits[attempts] = wait
        return wait

    def _is_simple(self, kind: type[BaseException]) -> bool:
        """Return True if `quick` may answer for a class of exceptions."""
        types, ordinary = names_of_class(kind)
        treatment = self._treatments[0]
        drawn_here = self._full and not treatment.backoff.draws
        simple = (
            not self.rules
            and not callable(self.on)
            and ((treatment.unchanged and not treatment.backoff.draws) or drawn_here)
        )
        return ordinary and simple and self._judge(Failure(types)) == _PLAIN

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
        if self.max_hint is not None and hint > self.max_hint:
            why = f"asked to wait {format_duration(hint)}, longer than max_hint={format_duration(self.max_hint)}"
            return GiveUp(why, "hint")
        if hint <= decision.delay and not dictated:
            return decision
        if self.jitter.is_upward:
            hint = max(hint, span(self.jitter.apply(hint.total_seconds(), sample)))
        return Retry(max(hint, ZERO), decision.nominal, "hint")

    def _remember(self, failure: Failure) -> int:
        verdict = self._judge(failure)
        # A program that makes classes on the fly must not fill the memory.
        if len(self._memo.verdicts) >= _REMEMBERED:
            self._memo.verdicts.clear()
        self._memo.verdicts[(failure.types, failure.reason) if self._by_reason else failure.types] = verdict
        return verdict

    def _judge(self, failure: Failure) -> int:
        if is_control_flow(failure):
            return _NO
        candidate = failure.candidate
        if candidate is None:
            if callable(self.on):
                message = (
                    "`on` is a classifier, which needs the exception: pass what policy.classify(exception) returns"
                )
                raise PolicyValueError(message)
            candidate = matches(self._names, self.groups, failure)
        elif failure.rejected_by is not None:
            candidate = self._rejects(failure)
        if not candidate:
            return _NO
        rule = self.rule_for(failure)
        return _PLAIN if rule is None else rule

    def _rejects(self, failure: Failure) -> bool:
        """Return True if a result that some part of a combination rejects is a failure for this part."""
        if self.on_result is not None:
            return bool(failure.rejected_by)
        return not callable(self.on) and matches(self._names, self.groups, failure)

    def _counts(self, verdict: int, history: History) -> tuple[int, int]:
        """Return the executions that count against the limit, and the number of the next retry of the backoff."""
        earlier = history.by_rule
        counted_apart = [n for n, treatment in zip(earlier, self._treatments, strict=False) if treatment.own_limit]
        # Counts of another policy may not fit.
        general = max(1, history.attempts - sum(counted_apart))
        if verdict == _PLAIN:
            return general, general
        own = (earlier[verdict] if verdict < len(earlier) else 0) + 1
        treatment = self._treatments[verdict]
        return (own if treatment.own_limit else general), (own if treatment.own_backoff else general)

    def rule_for(self, failure: Failure) -> int | None:
        """Return the index of the rule that a failure matches, or None."""
        for index, rule in enumerate(self.rules):
            if matches(frozenset(rule.on), self.groups, failure):
                return index
        return None

    @property
    def counters(self) -> int:
        """The number of values that this policy keeps in `History.by_rule`."""
        return self._kept

    def advance(
        self,
        history: History,
        failure: Failure,
        delay: timedelta,
        *,
        now: datetime,  # noqa: ARG002 - only a combination has to know which of its parts decided
        sample: float,
    ) -> History:
        """Return the history of the next attempt, after this failure was retried."""
        by_rule = history.by_rule
        if self._kept:
            by_rule = self._counted(by_rule, failure, sample)
        return _new(History, (history.attempts + 1, history.started_at, delay, by_rule))

    def _counted(self, by_rule: tuple[int, ...], failure: Failure, sample: float) -> tuple[int, ...]:
        """Return the numbers that this policy keeps, after a failure."""
        kept = [*by_rule[: self._kept], *(0,) * (self._kept - len(by_rule))]
        rule = self.rule_for(failure)
        if rule is not None:
            kept[rule] += 1
        memory = self._treatments[_PLAIN if rule is None else rule].memory
        if memory is not None:
            kept[memory] = 1 + int(sample * _FINE)
        return tuple(kept)

    @property
    def predicates(self) -> tuple[Predicate | None, ...]:
        """The ``on_result`` of each policy in a combination, left to right."""
        return (self.on_result,)


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
    what = failure.error_type.removeprefix("builtins.") or failure.reason
    return GiveUp(f"{what} is not one of the failures that this policy retries", "not_matched")


_UNKNOWN_OUTCOME = GiveUp(
    "it is unknown whether the call took effect, and it may not be repeated because it is not idempotent",
    "not_idempotent",
)
