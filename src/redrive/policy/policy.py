"""The policy: an immutable value that decides what follows a failed call.

A policy holds no counters and reads no clock: all that differs between calls is an argument of `Policy.decide`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from redrive.errors import PolicyValueError
from redrive.policy.backoff import Backoff
from redrive.policy.backoff_kinds import Constant, Exponential
from redrive.policy.call_methods import CallMethods
from redrive.policy.classify import answer_of, described, names_of
from redrive.policy.decider import Decider
from redrive.policy.duration import Duration, span
from redrive.policy.failure import Failure
from redrive.policy.fields import jitter_of
from redrive.policy.fields import span as span_of
from redrive.policy.jitter import Jitter
from redrive.policy.known import describe
from redrive.policy.stage import DISTRUSTED, Stage, is_distrusted
from redrive.policy.value import freeze
from redrive.seams import policy_from_dict, policy_operators, policy_to_dict

if TYPE_CHECKING:
    from redrive.policy.explain import Explanation

IN_PROCESS_DEADLINE = timedelta(seconds=45)
IN_PROCESS_MAX_HINT = timedelta(hours=1)
# Fields that hold functions or other objects of this process, beside `on`, which may.
_FUNCTIONS = ("on_result", "on_retry", "on_give_up", "stop")
# A retry after which every schedule that grows has reached its maximum.
_FAR = 10_000
_SPINNING = timedelta(seconds=1)
# Attempts of a policy that only names failures, and leaves all limits to the one that it is combined with.
_ALWAYS = 10**9


class Policy(CallMethods, Decider):
    """A retry policy. All arguments are keywords; durations are `timedelta`, seconds or text such as ``"1h30m"``.

    Args:
        on: failures that are candidates for a retry: exception types, their qualified names, names of reasons, or a
            classifier that is called with the exception and returns True or False, or the delay before the retry (a
            `timedelta` or seconds). None: any ``Exception`` that another attempt would not meet again, so no 404, no
            unique violation and no programming error; required in process. Functions, also in other fields, are not
            stored: a worker takes them from the policy of the task.
        on_result: predicate for results that count as failures; a coroutine function where calls are awaited.
        attempts: executions, the first included; None for no limit, then ``deadline`` or ``catch`` must bound the call.
        deadline: limit of the whole call, waits included. Default: none for durable jobs, 45 s in process.
        attempt_timeout: limit of one execution.
        backoff: schedule of the delays, or a function of the retry's number (`Backoff.calling`); by default exponential
            from 100 ms to 5 s.
        jitter: `Jitter` or its name; by default full, and none for a backoff that draws its own delays.
        rules: different treatment for some failures; the first match applies.
        catch: name of the task that runs after the last failure.
        hints: ``obey``: a hint (Retry-After) is a lower bound of the delay; ``ignore``: it has no effect; ``ai``: as
            ``obey``, and clients of HTTP read the headers of AI services (`redrive.policy.hints.ai`).
        max_hint: give up at once if a hint is longer than this; None for no limit. Default: 1 h in process, 7 d for
            durable jobs; the default does not limit `redrive.errors.RetryAfter`.
        over_deadline: action if a wait would pass the deadline: ``give_up``, ``defer`` or ``truncate``.
        nested: in nested policies, leave a failure to an outer policy that would retry it (``outer``), or retry it here
            as well (``both``).
        groups: an exception group is a candidate if ``all``, ``any`` or ``never`` of its leaves are.
        idempotent: allow a repetition of an attempt with unknown outcome, as after a timeout or a lost connection
            (`redrive.policy.stage`). Default: True for durable jobs, False in process.
        budget: key or object of a shared retry budget; None for none. Default: in process a budget of its own for each
            function, policy object and transport (`redrive.policy.budget.OWN`); none for durable jobs, and none under
            a clock of tests.
        breaker: key or object of a shared circuit breaker.
        hedge: key or object of a hedging plan.
        on_retry: function that is called with the `redrive.RetryDetails` of each retry, before its wait; a
            coroutine function where calls are awaited. Not stored: a worker calls that of the task.
        on_give_up: the same, called once if a call ends without success and is not deferred.
        stop: ``threading.Event``; once it is set, calls in process end at their present wait, or instead of their
            next retry, with the last error and the rule ``stopped``. An awaited wait ends within 0.1 s. Not stored;
            jobs are not affected.

    Raises:
        PolicyValueError: a value is not valid; the message names the field.
    """

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Check the arguments, set the fields, check them with each other, and derive what decisions need."""
        super()._keep(given)
        freeze(self, "deadline_given", given["deadline"] is not ...)
        freeze(self, "max_hint_given", given["max_hint"] is not ...)
        freeze(self, "budget_given", given["budget"] is not ...)
        freeze(self, "jitter", jitter_of(self.jitter, self.backoff))
        if self.on == () and self.on_result is None:
            names_of((), "on")
        self._check()
        self._prepare()

    def _check(self) -> None:
        """Check that something bounds the call, and that there is a deadline if ``over_deadline`` needs one."""
        if self.attempts is None and self.deadline is None and self.catch is None:
            raise PolicyValueError("attempts=None retries without end: bound it with a deadline or name a catch task")
        if self.over_deadline != "give_up" and self.deadline is None and self.deadline_given:
            raise PolicyValueError(f"over_deadline={self.over_deadline!r} needs a deadline, but deadline=None")

    # --- places

    def in_process(self) -> Policy:
        """Return this policy with the defaults of a call in process: deadline 45 s, max_hint 1 h, not idempotent.

        Raises:
            PolicyValueError: neither ``on`` nor ``on_result`` is given.
        """
        if self.on is None and self.on_result is None:
            raise PolicyValueError(
                "name the failures that may be retried, as in on=ConnectionError; a retry of every exception hides bugs"
            )
        changes: dict[str, Any] = {}
        if self.on is None:
            changes["on"] = ()
        if not self.deadline_given:
            changes["deadline"] = IN_PROCESS_DEADLINE
        if not self.max_hint_given and self.hints != "ignore":
            changes["max_hint"] = IN_PROCESS_MAX_HINT
        if self.idempotent is None:
            changes["idempotent"] = False
        return self.with_(**changes) if changes else self

    def durable(self) -> Policy:
        """Return this policy with the defaults of a durable job: idempotent, and no deadline unless given."""
        return self if self.idempotent is not None else self.with_(idempotent=True)

    def without_functions(self) -> Policy:
        """Return this policy as it is stored: without its predicates and hooks."""
        if not self.has_functions:
            return self
        changes: dict[str, Any] = dict.fromkeys(_FUNCTIONS)
        if callable(self.on):
            changes["on"] = None
        elif self.on == ():
            # Only rejected results are failures.
            changes["on"] = "RESULT"
        return self.with_(**changes)

    def with_functions(self, of: Policy) -> Policy:
        """Return this policy with the predicates and hooks of another one where it has none itself.

        The predicate ``on`` is taken if this policy names no failures. Of a combination the parts are completed.
        """
        changes = {name: getattr(of, name) for name in _FUNCTIONS if getattr(self, name) is None}
        if self.on is None and callable(of.on):
            changes["on"] = of.on
        return self.with_(**changes) if of.parts is None else self

    # --- forms

    @classmethod
    def parse(cls, text: str, *, strict: bool = False) -> Policy:
        """Read a retry directive, ``[<retries=10>] <min-backoff> [<max-backoff>] [catch <task>]``.

        Args:
            text: the directive; its number counts *retries*, so that ``attempts`` is one more. It may begin with
                ``//ftl:retry`` or ``+retry``, as it stands in Go or in FTL's schema.
            strict: apply FTL's limits (1 s to 1 d, no ``ms``) and use FTL's error texts.

        Raises:
            PolicySyntaxError: the directive cannot be read.
            PolicyValueError: a value is not valid.
        """
        if not isinstance(text, str):
            raise PolicyValueError(f"a directive is text, not {text!r}")
        if strict:
            from redrive.policy import ftl

            found = ftl.read_directive(text)
        else:
            from redrive.policy import directive

            found = directive.read_directive(text)
        backoff = Backoff.exponential(found.minimum, found.maximum)
        return cls(attempts=found.retries + 1, deadline=None, backoff=backoff, jitter=Jitter.none, catch=found.catch)

    def directive(self) -> str:
        """Return the directive of this policy: ``Policy.parse(policy.directive()) == policy``.

        Raises:
            PolicyValueError: a directive cannot express the policy; the message names the field.
        """
        from redrive.policy import directive

        return directive.write_directive(self)

    def to_dict(self) -> dict[str, Any]:
        """Return this policy as JSON-able data, with ``"version": 1`` and all fields.

        Raises:
            PolicyValueError: a field holds a function or an object without a key.
        """
        return cast("dict[str, Any]", policy_to_dict()(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Build a policy from the result of `to_dict`.

        Raises:
            PolicyValueError: a key is unknown or missing, or a value is not valid; the message names the key.
        """
        return cast("Policy", policy_from_dict()(data))

    # --- what it makes of an exception and of a result (in process)

    def classify(self, exception: BaseException, *, stage: Stage | None = None) -> Failure:
        """Describe an exception; if ``on`` is a classifier, call it.

        A certificate that was not trusted will not be trusted a few seconds later: it is a candidate only if ``on``
        names ``ssl.SSLCertVerificationError`` itself, and not one of its base classes.

        Args:
            exception: the exception.
            stage: how far the call got, unless the classifier returns a whole `Failure`; by default as far as the
                exception proves it (`redrive.policy.stage`).

        Raises:
            PolicyValueError: the classifier returned an awaitable.
        """
        if not callable(self.on):
            failure = describe(exception, stage=stage)
            if failure.stage is Stage.NOT_SENT and DISTRUSTED not in (self.on or ()) and is_distrusted(exception):
                return failure._replace(candidate=False)
            return failure
        return described(exception, answer_of(self.on(exception), "on", self.on), stage)

    def classify_result(self, result: object) -> Failure | None:
        """Describe a result that ``on_result`` of this policy, or of a part of it, rejects; return None if none does.

        Raises:
            PolicyValueError: a predicate returned an awaitable.
        """
        rejected_by = tuple(
            number
            for number, rejects in enumerate(self.predicates)
            if rejects is not None and answer_of(rejects(result), "on_result", rejects)
        )
        return Failure.of_result(result, rejected_by) if rejected_by else None

    # --- figures

    def delays(self, n: int | None = None) -> list[float]:
        """Return the nominal delays before retries 1 to n, in seconds; fewer if the backoff ends.

        Args:
            n: number of delays; by default the number of retries.

        Raises:
            PolicyValueError: the policy has no limit of attempts and ``n`` is None, or ``n`` is no whole number.
        """
        if n is not None and (not isinstance(n, int) or isinstance(n, bool)):
            raise PolicyValueError(f"delays({n!r}): the number of delays is a whole number, or None")
        wanted = self.retries if n is None else n
        if wanted is None:
            raise PolicyValueError("the policy has no limit of attempts: give the number of delays")
        return self.backoff.delays(wanted)

    @property
    def catch_delay(self) -> timedelta:
        """The interval between attempts of a failed catch task: the nominal delay that would follow the last retry.

        FTL stops its backoff after the last doubling: ``2 1s catch x`` retries the catch task every 4 s. A delay of
        zero becomes one second.
        """
        delay = self.backoff.delay(_FAR if self.attempts is None else self.attempts)
        # The schedule has ended before: its last delay.
        if delay is None:
            delay = self.backoff.delay(self.backoff.length or 1)
        return span(delay) if delay else _SPINNING

    def explain(self) -> Explanation:
        """Return the worst-case number of executions, the worst-case time, and a sentence that describes the policy."""
        from redrive.policy.explain import explain

        return explain(self)

    # --- algebra; see `redrive.policy.algebra`

    def __and__(self, other: Policy) -> Policy:
        """Give up if either policy does; of two retries take the later one."""
        return _combined("&", self, other)

    def __or__(self, other: Policy) -> Policy:
        """Give up if both policies do; of two retries take the earlier one."""
        return _combined("|", self, other)

    def __rshift__(self, other: Policy) -> Policy:
        """Follow this policy until it gives up, then the other."""
        return _combined(">>", self, other)

    def take(self, n: int) -> Policy:
        """Limit the retries to ``n`` in all, including those of rules that have attempts of their own."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise PolicyValueError(f"take({n!r}): the number of retries is a whole number, zero or more")
        taken = self.with_(attempts=n + 1 if self.attempts is None else min(n + 1, self.attempts))
        if not any(rule.attempts for rule in self.rules):
            return taken
        return taken & gate(self, attempts=n + 1) if n else taken.with_(rules=())

    def up_to(self, total: Duration) -> Policy:
        """Limit the whole call to this time, waits included."""
        limit = span_of(total, "up_to")
        return self.with_(deadline=limit if self.deadline is None else min(limit, self.deadline))

    def cap(self, maximum: Duration) -> Policy:
        """Limit each backoff to ``maximum``; hints remain lower bounds."""
        rules = [r if r.backoff is None else r.with_(backoff=r.backoff.cap(maximum)) for r in self.rules]
        return self.with_(backoff=self.backoff.cap(maximum), rules=rules)

    def at_least(self, minimum: Duration) -> Policy:
        """Return a policy with no wait shorter than ``minimum``, except for `RetryAfter` and the end at the deadline.

        A delay that was drawn below the minimum becomes the minimum itself, so such retries come together. To spread
        them above it, give the policy ``jitter=Jitter.added(...)`` or its backoff a ``.floor()``.
        """
        return self & gate(self, backoff=Constant(span_of(minimum, "at_least")), jitter="none")

    def per(self, *names: type[BaseException] | str) -> Policy:
        """Restrict the policy to failures of these reasons or types; it gives up on any other failure.

        A result that ``on_result`` rejects is retried if the reason ``RESULT`` is named.
        """
        if self.on is None and self.on_result is None:
            return self.with_(on=names)
        return self & gate(self, on=names, groups=self.groups)

    # --- value

    def arguments(self) -> dict[str, Any]:
        """See `redrive.policy.value.Value.arguments`."""
        arguments = super().arguments()
        if not self.deadline_given:
            del arguments["deadline"]
        if not self.max_hint_given:
            del arguments["max_hint"]
        if not self.budget_given:
            del arguments["budget"]
        return arguments

    def _key(self) -> tuple[object, ...]:
        return (self.deadline_given, self.max_hint_given, self.budget_given, *super()._key())

    def __repr__(self) -> str:
        usual = _USUAL.arguments()
        shown = {name: value for name, value in self.arguments().items() if name not in usual or usual[name] != value}
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _combined(sign: str, left: Policy, right: Policy) -> Policy:
    return cast("Policy", policy_operators()[sign](left, right))


def gate(policy: Policy, **limits: Any) -> Policy:  # noqa: ANN401 - each field of a policy has its own type
    """Return a policy that limits another through ``&`` in one respect and is neutral in all others."""
    fields = {"on": BaseException, "attempts": _ALWAYS, "backoff": Exponential(0), "nested": policy.nested, **limits}
    # The deadline of the policy, or its lack of one, is copied, so that both can be changed together.
    if policy.deadline_given:
        fields["deadline"] = policy.deadline if policy.parts is None else None
    if policy.parts is None:
        fields["over_deadline"] = policy.over_deadline
    return Policy(hints="ignore", idempotent=True, **fields)


def only_limits(policy: Policy) -> bool:
    """Return True if a policy is a result of `gate`."""
    return policy.on == _ANYTHING and policy.hints == "ignore" and policy.idempotent is True


_ANYTHING = ("builtins.BaseException",)
_USUAL = Policy()
