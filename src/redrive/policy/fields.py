"""The fields of a policy, each declared once: types, check, default, stored form, and value in a directive; its rules.

`PolicySettings` declares them. `redrive.policy.Policy` has its constructor and attributes from there, `redrive.retry`
its keyword arguments, and the codec and the directive read `FIELDS`. Each check gets the value and the name of the
field, and returns the value to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import EllipsisType, MappingProxyType
from typing import Any, TypeVar, dataclass_transform

from redrive.errors import PolicyError, PolicyValueError
from redrive.policy.backoff import Backoff, BackoffFunction, schedule_of
from redrive.policy.backoff_kinds import Exponential
from redrive.policy.classify import Classifier, On, Predicate, is_coroutine_function, names_of
from redrive.policy.duration import ZERO, Duration, parse_duration, parse_wait
from redrive.policy.jitter import Jitter
from redrive.policy.outcome import Hook, StopEvent
from redrive.policy.value import Converted, Field, Frozen, Value, check_attempts, freeze
from redrive.seams import spelled


class Rule(Value):
    """The treatment of one kind of failure.

    A rule with its own ``attempts`` has its own count: its failures do not use up the policy's attempts, and the
    policy's limit does not end it. A rule with its own ``backoff`` starts it at its own first failure. Other fields
    are the policy's.

    Args:
        on: exception types, their qualified names, or names of reasons.
        backoff: its schedule of delays, or a function (`Backoff.calling`); None for the policy's.
        attempts: failures of this kind, the last one being final; None for the policy's limit.

    Raises:
        PolicyValueError: ``on`` is empty, or ``attempts`` is less than 1.
    """

    on: tuple[str, ...]
    backoff: Backoff | None
    attempts: int | None

    @spelled("Rule")
    def __init__(
        self,
        on: type[BaseException] | str | Iterable[type[BaseException] | str],
        *,
        backoff: Backoff | BackoffFunction | None = None,
        attempts: int | None = None,
    ) -> None:
        if callable(on) and not isinstance(on, type):
            raise PolicyValueError(
                "a rule takes names, not a classifier: let the policy's classifier return a reason, and name that"
            )
        freeze(self, "on", names_of(on, "Rule.on"))
        freeze(self, "backoff", None if backoff is None else schedule_of(backoff, "Rule.backoff"))
        freeze(self, "attempts", check_attempts(attempts, "Rule.attempts"))

    def name(self, position: int) -> str:
        """Return the name that decisions show, such as ``rule 2 (httpx.ReadTimeout)``; positions count from 1."""
        return f"rule {position} ({', '.join(name.removeprefix('builtins.') for name in self.on)})"


_T = TypeVar("_T")


def _candidates(on: On | None, field: str) -> tuple[str, ...] | Classifier | None:
    """Check ``on``: names, a classifier, or None for any exception. ``()`` is checked with ``on_result``."""
    if on is None or on == ():
        return on
    return on if callable(on) and not isinstance(on, type) else names_of(on, field)


def _bound(value: Duration | EllipsisType | None, field: str) -> timedelta | None:
    """Check ``deadline`` and ``attempt_timeout``: a span above zero, None for no limit, or ... for the default."""
    if value is None or isinstance(value, EllipsisType):
        return None
    kept = span(value, field)
    if kept == ZERO:
        raise PolicyValueError(f"{field}={value!r} leaves no time at all; None means no bound")
    return kept


# A longer hint is a mistake of the server, or a refusal.
DURABLE_MAX_HINT = timedelta(days=7)


def _max_hint(value: Duration | EllipsisType | None, field: str) -> timedelta | None:
    """Check ``max_hint``: a span, None for no limit, or ... for the default of the place."""
    if isinstance(value, EllipsisType):
        return DURABLE_MAX_HINT
    return None if value is None else span(value, field)


def span(value: Duration, field: str, *, parse: Callable[[Duration], timedelta] = parse_duration) -> timedelta:
    """Check ``max_hint`` and other spans; errors name the field."""
    try:
        return parse(value)
    except PolicyError as error:
        problem = f"{field}: {error.problem}"
        raise type(error)(f"{field}: {error}", text=error.text, at=error.at, problem=problem) from None


def wait(value: Duration, field: str) -> timedelta:
    """Check the time until something is due; errors name the field."""
    return span(value, field, parse=parse_wait)


def _jitter(value: Jitter | str | None, field: str) -> Jitter | None:
    """Check ``jitter``; None stands for the default of the backoff."""
    kept = Jitter(value) if isinstance(value, str) else value
    if kept is not None and not isinstance(kept, Jitter):
        raise PolicyValueError(f"{field}={value!r}: use none, full, equal, Jitter.plus(fraction) or Jitter.added(span)")
    return kept


def jitter_of(given: Jitter | None, backoff: Backoff) -> Jitter:
    """Return the jitter of a policy: full by default, none for a backoff that draws its own delays."""
    if backoff.draws and given not in (None, Jitter.none):
        raise PolicyValueError(f"a {backoff.kind} backoff draws its delays by itself: leave out jitter={given.kind!r}")
    if given is None:
        return Jitter.none if backoff.draws else Jitter.full
    return given


def _rules(value: Iterable[Rule], field: str) -> tuple[Rule, ...]:
    """Check ``rules``."""
    if isinstance(value, Rule) or not isinstance(value, Iterable):
        raise PolicyValueError(f"{field}={value!r} is no list of rules: write rules=[Rule(...)]")
    kept = tuple(value)
    for rule in kept:
        if not isinstance(rule, Rule):
            raise PolicyValueError(f"{field}: {rule!r} is not a Rule")
    return kept


def _task(name: str | None, field: str) -> str | None:
    """Check ``catch``, the name of a task."""
    if name is not None and not (isinstance(name, str) and all(part.isidentifier() for part in name.split("."))):
        raise PolicyValueError(f"{field}={name!r}: the catch task is named 'task' or 'module.task'")
    return name


def _choice(*words: str) -> Callable[[str, str], str]:
    """Return the check of a field with a fixed set of words."""

    def check(value: str, field: str) -> str:
        if value not in words:
            raise PolicyValueError(f"{field}={value!r}: it can be {', '.join(words)}")
        return value

    return check


def _flag(value: bool | None, field: str) -> bool | None:  # noqa: FBT001 - the value of a field
    """Check a field that is True, False, or None for the default of the place."""
    if value is not None and not isinstance(value, bool):
        raise PolicyValueError(f"{field}={value!r}: it can be True or False, or None for the default of the place")
    return value


def _hook(value: object, field: str) -> object:
    """Check ``on_retry`` and ``on_give_up``: a function, or None."""
    if value is not None and not callable(value):
        raise PolicyValueError(f"{field}={value!r}: it is a function that takes the RetryDetails, or None")
    return value


def _stop(value: object, field: str) -> object:
    """Check ``stop``: an event of threads or processes, or None."""
    waits = getattr(value, "wait", None)
    if value is None or (
        callable(getattr(value, "is_set", None)) and callable(waits) and not is_coroutine_function(waits)
    ):
        return value
    raise PolicyValueError(
        f"{field}={value!r}: give a threading.Event, also in async code, or None; a limit is attempts=6 or "
        'deadline="10m"'
    )


def _resource(value: object, field: str) -> object:
    """Check ``budget``, ``breaker`` and ``hedge``: a key, an object, or None."""
    if value == "":
        raise PolicyValueError(f"{field}='' is empty: give a key, an object, or None")
    if isinstance(value, int | float | bytes):
        raise PolicyValueError(
            f"{field}={value!r} is no {field}: give a key, or the result of redrive.retrying.{field}()"
        )
    # A hedge has no state, so a policy may hold it itself.
    if isinstance(value, Value) and field != "hedge":
        given = f"{type(value).__name__}(...)"
        raise PolicyValueError(
            f"{field}={given} has no state that calls could share: give a key, or the result of "
            f'redrive.retrying.{field}("name", {given})'
        )
    return value


def _budget(value: object, field: str) -> object:
    """Check ``budget``: a key, an object, None for no budget, or ... for the default of the place."""
    return None if isinstance(value, EllipsisType) else _resource(value, field)


def _predicate(value: Predicate | None, field: str) -> Predicate | None:
    """Check ``on_result``."""
    if value is not None and not callable(value):
        raise PolicyValueError(
            f"{field}={value!r} is no function: give one that returns True for a result to retry, as in "
            f"{field}=lambda result: result is None"
        )
    return value


# ---------------------------------------------------------------------------------------------------------- the fields

# The version of the stored form.
VERSION = 1

# The fields that the text of a directive sets; all others have the value that their declaration names.
DIRECTIVE_SETS = ("attempts", "backoff", "catch")


def field(check: Callable[[Any, str], object], stored: str | None, *, default: object, directive: object = None) -> Any:  # noqa: ANN401 - the annotation of the field is its type
    """Declare a field; see `Field`."""
    return Field(check, default, stored, directive)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _typed(cls: type[_T]) -> type[_T]:
    """Mark a class for type checkers. If its base class had the mark, mypy would forget the types that are kept."""
    return cls


@_typed
class PolicySettings(Frozen):
    """The fields of a policy, in the order of its constructor; `redrive.policy.Policy` describes them."""

    on: Converted[tuple[str, ...] | Classifier | None, On | None] = field(_candidates, "names", default=None)
    on_result: Predicate | None = field(_predicate, None, default=None)
    attempts: int | None = field(check_attempts, "plain", default=3)
    deadline: Converted[timedelta | None, Duration | EllipsisType | None] = field(_bound, "default span", default=...)
    attempt_timeout: Converted[timedelta | None, Duration | None] = field(_bound, "span", default=None)
    backoff: Converted[Backoff, Backoff | BackoffFunction] = field(
        schedule_of, "backoff", default=Exponential(0.1, 5.0)
    )
    jitter: Converted[Jitter, Jitter | str | None] = field(_jitter, "jitter", default=None, directive=Jitter.none)
    rules: Converted[tuple[Rule, ...], Iterable[Rule]] = field(_rules, "rules", default=(), directive=())
    catch: str | None = field(_task, "plain", default=None)
    hints: str = field(_choice("obey", "ignore", "ai"), "plain", default="obey", directive="obey")
    max_hint: Converted[timedelta | None, Duration | EllipsisType | None] = field(
        _max_hint, "default span", default=..., directive=DURABLE_MAX_HINT
    )
    over_deadline: str = field(_choice("give_up", "defer", "truncate"), "plain", default="give_up", directive="give_up")
    nested: str = field(_choice("outer", "both"), "plain", default="outer", directive="outer")
    groups: str = field(_choice("all", "any", "never"), "plain", default="all", directive="all")
    idempotent: bool | None = field(_flag, "plain", default=None)
    budget: Converted[object, object | EllipsisType] = field(_budget, "default resource", default=...)
    breaker: object = field(_resource, "resource", default=None)
    hedge: object = field(_resource, "resource", default=None)
    on_retry: Hook | None = field(_hook, None, default=None)
    on_give_up: Hook | None = field(_hook, None, default=None)
    stop: StopEvent | None = field(_stop, None, default=None)

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Check the arguments of the constructor, and set the fields."""
        for name, each in FIELDS.items():
            value = given[name]
            freeze(self, name, each.kept if value is each.default else each.check(value, name))


# Errors about arguments name the class that users call.
PolicySettings.__init__ = spelled("Policy")(PolicySettings.__init__)  # type: ignore[method-assign]

FIELDS: Mapping[str, Field] = MappingProxyType(PolicySettings._defaults)  # of a class of this module
