"""Adapters for ``inprocess.json``: scripted calls and generators, made by the in-process forms on a clock that jumps.

Translations that are more than a renaming: a policy without attempts is bounded by its timeout alone, and one with
neither by a day, since redrive refuses what nothing bounds; ``after`` (sleep past the deadline) is a mode that redrive
does not have, its deadline gives up early; ``Permanent(X)`` is an X that is raised from `redrive.errors.GiveUp`.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import redrive
from redrive.errors import GiveUp
from redrive.policy import Backoff, Policy
from redrive.policy.outcome import GaveUp, Outcome
from redrive.retrying.context import trial, using
from tests.conformance.adapters.policies import policy_of
from tests.conformance.adapters.vocabulary import UnknownWord, demand, is_refused, read, word
from tests.retrying.helpers import JumpingClock, checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.conformance.loading import Case

Json = dict[str, Any]

EXPECTED = (
    "calls", "returns", "returns_last", "raises", "sleeps", "exhausted", "stop_reason", "cause", "elapsed",
    "invalid_policy", "slept_less_than",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- calls


def run_script(case: Case) -> None:
    """Call a scripted function under a policy."""
    data = read(case.data, "policy", "script", "u", "expect")
    if is_refused(data["expect"], lambda: _policy(data["policy"])):
        return
    expect = read(data["expect"], *EXPECTED)
    demand(expect, *EXPECTED)
    if _is_drawn(data["policy"]) and data.get("u") is None:
        raise UnknownWord("a backoff with jitter and no draw 'u'")
    scripted = _Scripted(data["script"])
    with ExitStack() as scopes:
        scopes.enter_context(using(clock=scripted.clock, sample=data.get("u")))
        for scope in _scopes(data["policy"]):
            scopes.enter_context(scope)
        _compare(expect, scripted, _run(_policy(data["policy"]), scripted))


def _run(policy: Policy, scripted: _Scripted) -> Outcome[Any] | BaseException:
    try:
        if scripted.clock.cancel_after is None:
            return policy.outcome(scripted)
        return asyncio.run(policy.aoutcome(scripted.as_async))
    except BaseException as error:  # noqa: BLE001 - control flow is an outcome of a case, too
        return error


def _compare(  # noqa: C901 - a table: one line or two for each field
    expect: Any, scripted: _Scripted, got: Outcome[Any] | BaseException
) -> None:
    clock = scripted.clock
    for field, expected in expect.items():
        match field:
            case "calls":
                assert expected == scripted.calls
            case "returns" | "returns_last":
                assert not isinstance(got, BaseException)
                assert _value(expected) == got.unwrap()
            case "raises":
                error = got if isinstance(got, BaseException) else getattr(got, "error", None)
                assert _exception(expected).args == error.args
                assert type(_exception(expected)) is type(error)
            case "sleeps":
                waits = [] if isinstance(got, BaseException) else [d.total_seconds() for d in got.record.delays]
                assert pytest.approx(expected) == waits
                assert [each for each in waits if each] == clock.slept
            case "exhausted":
                assert expected == (isinstance(got, GaveUp) and got.rule == "attempts")
            case "stop_reason":
                assert isinstance(got, GaveUp)
                assert got.rule in word(expected, STOPS)
            case "invalid_policy":
                """False, or the policy would have been refused."""
            case "cause":
                assert isinstance(got, GaveUp)
                assert expected == type(got.error).__name__
            case "elapsed":
                assert pytest.approx(expected) == clock.monotonic()
            case "slept_less_than":
                assert clock.monotonic() < expected


STOPS = {
    "deadline": ("deadline",),
    "attempts": ("attempts", "backoff"),
    "max_attempts": ("attempts", "backoff"),
    "pushback_over_deadline": ("deadline", "hint"),
    "hint": ("hint",),
    "permanent": ("permanent",),
    "not_retryable": ("not_matched",),
    "non_retryable": ("not_matched",),
    "disabled": ("disabled",),
}
"""The file's reasons for an end, and the equivalent rules of a record."""


class _Clock(JumpingClock):
    """A clock that jumps, and that cancels the sleeping task where the script requires it.

    Attributes:
        cancel_after: seconds into the next sleep.
    """

    cancel_after: float | None = None

    async def asleep(self, seconds: float) -> None:
        """Jump, or be cancelled on the way."""
        if self.cancel_after is not None and self.cancel_after < seconds:
            task = asyncio.current_task()
            assert task is not None
            self.advance(self.cancel_after)
            task.cancel()
        await checkpoint()
        self.sleep(seconds)


class ScriptOver(BaseException):
    """More calls of the function than its script has."""


class _Scripted:
    """The function of a case.

    Attributes:
        calls: how often it was called.
        clock: its time.
    """

    def __init__(self, steps: list[Any]) -> None:
        self.calls = 0
        self.clock = _Clock()
        self._steps = []
        for step in steps:
            if isinstance(step, dict):
                self.clock.cancel_after = read(step, "cancel_during_sleep")["cancel_during_sleep"]
                continue
            given, takes = step if isinstance(step, list) and len(step) == 2 else (step, 0.0)
            if not isinstance(given, str) or given[:1] not in ("!", "=") or not isinstance(takes, int | float):
                raise UnknownWord(f"step {step!r} (known: '!Exception', '=value', [outcome, seconds])")
            if given[0] == "!":
                _exception(given[1:])  # fails here, and not inside of a retried call
            self._steps.append((given, takes))

    def __call__(self) -> Any:
        """Take the next step of the script."""
        if self.calls == len(self._steps):
            raise ScriptOver(f"call {self.calls + 1}")
        given, takes = self._steps[self.calls]
        self.calls += 1
        self.clock.advance(takes)
        if given[0] == "!":
            raise _exception(given[1:])
        return _value(given[1:])

    async def as_async(self) -> Any:
        """Call the function as a coroutine function."""
        return self()


def _value(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return {"None": None, "True": True, "False": False}.get(given, given)


class Wrapped(Exception):
    """An exception that has another one as its cause."""


def _exception(given: str) -> BaseException:
    found = re.fullmatch(r"(\w+)(?:\((.*)\))?", given)
    if found is None:
        raise UnknownWord(f"{given!r} (known: Name, Name(text), Name(field=number), Name(Cause))")
    name, inside = found[1], found[2] or ""
    if name == "Wrapped":
        error = Wrapped()
        error.__cause__ = _exception(inside)
        return error
    if name == "Permanent":
        error = _exception(inside) if inside else GiveUp()
        if inside:
            error.__cause__ = GiveUp(inside)
        return error
    kind = _KINDS.get(name) or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise UnknownWord(f"{name!r} (known: {', '.join(_KINDS)}, Wrapped, Permanent, built-in exceptions)")
    field = re.fullmatch(r"(\w+)=(-?\d+(?:\.\d+)?)", inside)
    if field is not None and field[1] not in ("retry_after", "hint"):
        raise UnknownWord(f"{given!r}: {field[1]!r} (known: retry_after, hint)")
    raised = kind(*([inside] if inside and not field else []))
    if field is not None:
        setattr(raised, field[1], float(field[2]))
    return raised


_KINDS = {"CancelledError": asyncio.CancelledError, "cancelled": asyncio.CancelledError}


# ------------------------------------------------------------------------------------------------------- policies

DAY = 86_400


def _policy(given: Json) -> Policy:
    # The scripts are about matching and counting: what they call may be repeated.
    fields: Json = {"deadline": None, "jitter": "none", "backoff": Backoff.constant(0), "idempotent": True}
    given = read(given, *_FIELDS)
    for one, other in (("on", "not_on"), ("attempts", "max_retries")):
        if one in given and other in given:
            raise UnknownWord(f"{one!r} beside {other!r}")
    for field, value in given.items():
        _FIELDS[field](fields, value)
    if fields.setdefault("attempts", None) is None and fields["deadline"] is None:
        fields["deadline"] = DAY
    if "on_result" in fields:
        fields.setdefault("on", ())
    return Policy(**fields)


def _set(name: str, change: Callable[[Any], Any] = lambda value: value) -> Callable[[Json, Any], None]:
    def put(fields: Json, value: Any) -> None:
        fields[name] = change(value)

    return put


def _spaced(fields: Json, given: Any) -> None:
    if given is None or given == {"backoff": "hint"}:
        return
    policy = policy_of(given)
    if policy.parts is not None:
        raise UnknownWord("a floor over additive jitter in a script")
    fields |= {"backoff": policy.backoff, "jitter": policy.jitter}


def _is_drawn(given: Json) -> bool:
    fields: Json = {}
    _spaced(fields, given.get("backoff"))
    return bool(fields) and (fields["jitter"].kind != "none" or fields["backoff"].draws)


def _nothing(_fields: Json, _value: Any) -> None:
    """Accept a field that describes a scope, or that is true of every call here."""


def _reraise(_fields: Json, value: Any) -> None:
    if value is not True:
        raise UnknownWord(f"reraise={value!r} (known: true)")


def _kinds(names: list[str] | str) -> tuple[type[BaseException], ...]:
    named = [names] if isinstance(names, str) else names
    if not named:
        raise UnknownWord("a policy that names no exception")
    return tuple(type(_exception(name)) for name in named)


def _but(names: list[str] | str) -> Callable[[BaseException], bool]:
    kinds = _kinds(names)
    return lambda error: not isinstance(error, kinds)


def _result_is(given: Any) -> Callable[[Any], bool]:
    """Return a predicate by its name: ``is_false``, ``is_not_none``, ``is_one``, ``is_7``."""
    found = re.fullmatch(r"is_(not_)?(\w+)", given) if isinstance(given, str) else None
    if found is None or (found[2] not in _RESULTS and not found[2].isdigit()):
        raise UnknownWord(f"{given!r} (known: is_ or is_not_ with {', '.join(_RESULTS)}, or a number)")
    wanted = _RESULTS.get(found[2]) or (lambda value: value == int(found[2]))
    return lambda value: wanted(value) is (found[1] is None)


_RESULTS: dict[str, Callable[[Any], bool]] = {
    "false": lambda value: value is False,
    "true": lambda value: value is True,
    "none": lambda value: value is None,
    "null": lambda value: value is None,
    "falsy": lambda value: not value,
    "truthy": bool,
    "empty": lambda value: value is not None and not isinstance(value, int | float) and len(value) == 0,
    "zero": lambda value: value == 0,
    "one": lambda value: value == 1,
    "two": lambda value: value == 2,
    "negative": lambda value: value < 0,
}

_FIELDS: dict[str, Callable[[Json, Any], None]] = {
    "on": _set("on", _kinds),
    "not_on": _set("on", _but),
    "attempts": _set("attempts"),
    "max_retries": _set("attempts", lambda retries: None if retries is None else retries + 1),
    "timeout": _set("deadline"),
    "max_hint": _set("max_hint"),
    "backoff": _spaced,
    "retry_if_result": _set("on_result", _result_is),
    "deadline_mode": _set(
        "over_deadline", lambda mode: word(mode, {"cap": "truncate", "fail_early": "give_up", "after": "give_up"})
    ),
    "reraise": _reraise,
    "enabled": _nothing,
    "testing": _nothing,
}


def _scopes(given: Json) -> Iterator[Any]:
    if not given.get("enabled", True):
        yield redrive.disabled()
    if "testing" in given:
        testing = read(given["testing"], "attempts", "cap")
        yield trial(testing.get("attempts", 1), cap=testing.get("cap", False))


# ----------------------------------------------------------------------------------------------------- generators


def run_generator(case: Case) -> None:
    """Read a scripted generator to its end under a policy, in both colours."""
    data = read(case.data, "mode", "attempts", "on", "max_attempts", "expect")
    mode = word(data.get("mode"), _MODES)
    expect = read(data["expect"], "yielded", "returns", "raises", "attempt_2_called_with_last")
    demand(expect, "yielded")
    for colour in (_read, _aread):
        played = _Played(data["attempts"])
        most = data.get("max_attempts", len(data["attempts"]) + 1)
        # What a generator reads may be read again, as in `_policy`.
        policy = Policy(on=_kinds(data["on"]), attempts=most, backoff=Backoff.constant(0), idempotent=True)
        items, returned, error = colour(redrive.retry(policy, generator=mode), played)
        assert expect["yielded"] == items
        assert expect.get("raises") == (None if error is None else type(error).__name__)
        if colour is _read:
            assert expect.get("returns") == returned
        if "attempt_2_called_with_last" in expect:
            assert [None, expect["attempt_2_called_with_last"]] == played.started_after


_MODES: dict[str | None, Any] = {
    None: "restart",
    "restart": "restart",
    "before_first_item_only": "until_first_item",
    "resume_from": redrive.resume(),
}


class _Played:
    """The generator function of a case, in both colours.

    Attributes:
        started_after: the last item before each attempt, as the attempt received it.
    """

    def __init__(self, attempts: list[Json]) -> None:
        self.started_after: list[Any] = []
        self._attempts = [read(each, "yields", "raises", "returns") for each in attempts]

    def play(self, after: Any = None) -> Iterator[Any]:
        """Yield what the next attempt yields."""
        given = self._next(after)
        yield from given["yields"]
        if "raises" in given:
            raise _exception(given["raises"])
        return given.get("returns")

    async def aplay(self, after: Any = None) -> AsyncIterator[Any]:
        """Yield the same items asynchronously."""
        given = self._next(after)
        for item in given["yields"]:
            yield item
        if "raises" in given:
            raise _exception(given["raises"])

    def _next(self, after: Any) -> Any:
        self.started_after.append(after)
        if len(self.started_after) > len(self._attempts):
            raise ScriptOver(f"attempt {len(self.started_after)}")
        return self._attempts[len(self.started_after) - 1]


def _read(retry: Any, played: _Played) -> tuple[list[Any], Any, BaseException | None]:
    items, generator = [], retry(played.play)()
    while True:
        try:
            items.append(next(generator))
        except StopIteration as stop:
            return items, stop.value, None
        except BaseException as error:  # noqa: BLE001 - any error of the case
            return items, None, error


def _aread(retry: Any, played: _Played) -> tuple[list[Any], Any, BaseException | None]:
    async def main() -> tuple[list[Any], Any, BaseException | None]:
        items = []
        try:
            async for item in retry(played.aplay)():
                items.append(item)  # noqa: PERF401 - what came before an error counts
        except BaseException as error:  # noqa: BLE001 - any error of the case
            return items, None, error
        return items, None, None

    return asyncio.run(main())
