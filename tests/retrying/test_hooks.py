"""Tests of ``on_retry`` and ``on_give_up`` of policies, and of `redrive.attempt`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

import redrive
from redrive import Backoff, GiveUp, Policy, RetryDetails
from redrive.clock import SystemClock
from redrive.errors import CircuitOpen, PolicyValueError
from redrive.retrying import BreakerSettings, RatioBudget, breaker, budget, isolated
from redrive.retrying.hedging import Hedge

NOW = Backoff.constant(0)


class HookedCalls:
    """A function that fails, and hooks that keep what they are called with."""

    def __init__(self, failures: int = 10) -> None:
        self.failures = failures
        self.number = 0
        self.retries: list[RetryDetails] = []
        self.ends: list[RetryDetails] = []

    def policy(self, **fields: Any) -> Policy:
        """Return a policy with both hooks."""
        fields = {"on": ConnectionError, "backoff": NOW, **fields}
        return Policy(on_retry=self.retries.append, on_give_up=self.ends.append, **fields)

    def apolicy(self, **fields: Any) -> Policy:
        """Return a policy with both hooks as coroutine functions."""

        async def on_retry(details: RetryDetails) -> None:
            await SystemClock().asleep(0)
            self.retries.append(details)

        async def on_give_up(details: RetryDetails) -> None:
            await SystemClock().asleep(0)
            self.ends.append(details)

        return self.policy(**fields).with_(on_retry=on_retry, on_give_up=on_give_up)

    def fetch(self, name: str, *, size: int = 1) -> str:
        """Fail, then return."""
        self.number += 1
        if self.number <= self.failures:
            raise ConnectionError(f"{self.number}")
        return name * size

    async def afetch(self, name: str, *, size: int = 1) -> str:
        """Do the same, awaited."""
        await SystemClock().asleep(0)
        return self.fetch(name, size=size)


def test_hooks_get_the_details_of_each_retry():
    """`on_retry` is called before each wait with arguments, attempt, error, delay and rule."""
    calls = HookedCalls(failures=2)

    assert "aa" == redrive.retry(calls.policy(backoff=Backoff.listed([0, "1ms"]), jitter="none"))(calls.fetch)(
        "a", size=2
    )
    first, second = calls.retries
    assert ("a",) == first.args
    assert {"size": 2} == first.kwargs
    assert [1, 2] == [first.attempt, second.attempt]
    assert "2" == str(second.error)
    assert timedelta(milliseconds=1) == second.delay
    assert ("backoff", "") == (second.rule, second.why)
    assert first.function.endswith("HookedCalls.fetch")
    assert first.failure is not None
    assert "ERROR" == first.failure.reason
    assert timedelta(0) <= first.elapsed <= second.elapsed
    assert [] == calls.ends


def test_the_hook_of_the_end_is_called_once():
    """`on_give_up` is called after the last attempt, with the reason of the end."""
    calls = HookedCalls()

    with pytest.raises(ConnectionError):
        calls.policy(attempts=3).call(calls.fetch, "a")

    assert [1, 2] == [each.attempt for each in calls.retries]
    (end,) = calls.ends
    assert (3, "attempts", "3 of 3 attempts failed", None) == (end.attempt, end.rule, end.why, end.delay)
    assert "3" == str(end.error)


def test_rejected_results_reach_the_hooks():
    """Hooks get the result that `on_result` rejects, and no error."""
    calls = HookedCalls()
    policy = Policy(
        on_result=lambda value: value < 5,
        attempts=2,
        backoff=NOW,
        on_retry=calls.retries.append,
        on_give_up=calls.ends.append,
    )
    values = iter([1, 2])

    assert 2 == policy.call(lambda: next(values))
    assert [(1, None)] == [(each.value, each.error) for each in calls.retries]
    assert [(2, None, "attempts")] == [(each.value, each.error, each.rule) for each in calls.ends]


def test_failures_that_no_policy_retries_call_no_hook():
    """Errors that `on` does not name at the first attempt, and successes, call no hook."""
    calls = HookedCalls(failures=0)

    calls.policy().call(calls.fetch, "a")
    with pytest.raises(ValueError, match="never"):
        calls.policy().call(int, "never")

    assert ([], []) == (calls.retries, calls.ends)


def test_final_failures_call_the_hook_of_the_end():
    """`GiveUp` raised by the function ends the call, and `on_give_up` gets its reason."""
    calls = HookedCalls()

    def fetch() -> None:
        raise GiveUp("no such account")

    with pytest.raises(GiveUp):
        calls.policy().call(fetch)
    assert [("permanent", "no such account")] == [(each.rule, each.why) for each in calls.ends]


def test_a_refused_call_calls_the_hook_of_the_end():
    """Calls that their circuit breaker refuses have no attempt and no failure."""
    calls = HookedCalls()
    with isolated():
        breaker("b", BreakerSettings(volume_threshold=1)).circuit.admit().failed()
        policy = calls.policy(breaker="b", attempts=1)
        for _ in range(2):
            with pytest.raises((CircuitOpen, ConnectionError)):
                policy.call(calls.fetch, "a")
        with pytest.raises(CircuitOpen):
            asyncio.run(calls.apolicy(breaker="b").acall(calls.afetch, "a"))

    assert (0, None, "breaker") == (calls.ends[-1].attempt, calls.ends[-1].failure, calls.ends[-1].rule)


def test_a_refused_retry_is_the_end():
    """Retries that the budget refuses are no retries for the hooks."""
    calls = HookedCalls()
    with isolated():
        budget("b", RatioBudget(0, minimum=0))
        with pytest.raises(ConnectionError):
            calls.policy(budget="b").call(calls.fetch, "a")

    assert [] == calls.retries
    assert [(1, "budget")] == [(each.attempt, each.rule) for each in calls.ends]


@pytest.mark.parametrize("hooks", ["policy", "apolicy"])
def test_async_calls_await_their_hooks(hooks: str):
    """Hooks of awaited calls may be plain or coroutine functions; a coroutine function is awaited before the wait."""
    calls = HookedCalls()

    with pytest.raises(ConnectionError):
        asyncio.run(redrive.retry(getattr(calls, hooks)(attempts=3))(calls.afetch)("a", size=2))

    assert [1, 2] == [each.attempt for each in calls.retries]
    assert [(3, ("a",), {"size": 2})] == [(each.attempt, each.args, each.kwargs) for each in calls.ends]


def test_hedged_calls_call_the_hook_of_the_end_once():
    """Each copy of a hedged call reports its retries; the end of the call is reported once."""
    calls = HookedCalls()
    policy = calls.apolicy(attempts=2, idempotent=True, hedge=Hedge("1s"))

    with pytest.raises(ConnectionError):
        asyncio.run(policy.acall(calls.afetch, "a"))

    assert 2 == len(calls.retries)
    assert [("attempts", ("a",))] == [(each.rule, each.args) for each in calls.ends]


def test_generators_call_hooks():
    """Retried generators of both kinds call and await hooks."""
    calls = HookedCalls()

    @redrive.retry(calls.policy(attempts=2))
    def rows(name: str) -> Iterator[str]:
        yield calls.fetch(name)

    @redrive.retry(calls.apolicy(attempts=2))
    async def arows(name: str) -> AsyncIterator[str]:
        yield await calls.afetch(name)

    async def all_rows() -> list[str]:
        return [row async for row in arows("b")]

    with pytest.raises(ConnectionError):
        list(rows("a"))
    with pytest.raises(ConnectionError):
        asyncio.run(all_rows())

    assert [("a",), ("b",)] == [each.args for each in calls.retries]
    assert [("a",), ("b",)] == [each.args for each in calls.ends]


def test_blocks_call_hooks():
    """Blocks call the hooks of their policy; they have no arguments."""
    calls = HookedCalls()

    def fetch() -> None:
        for attempt in calls.policy(attempts=2):
            with attempt:
                calls.fetch("a")

    with pytest.raises(ConnectionError):
        fetch()
    assert [(1, ())] == [(each.attempt, each.args) for each in calls.retries]
    assert [2] == [each.attempt for each in calls.ends]


def test_coroutine_functions_are_refused_where_nothing_awaits_them():
    """Plain functions and blocks refuse a hook that is a coroutine function, or that returns an awaitable."""
    calls = HookedCalls()

    with pytest.raises(PolicyValueError, match="on_retry=.* is a coroutine function, which a plain function cannot"):
        redrive.retry(calls.apolicy())(calls.fetch)
    with pytest.raises(PolicyValueError, match="on_retry=.* is a coroutine function, which a block cannot"):
        next(iter(calls.apolicy()))
    with pytest.raises(PolicyValueError, match="on_retry=.* returned an awaitable where nothing awaits it"):
        Policy(on=ConnectionError, on_retry=lambda _: SystemClock().asleep(0)).call(calls.fetch, "a")


def test_both_parts_of_a_combination_have_hooks():
    """The hooks of all parts are called, one that both parts have once."""
    calls, seen = HookedCalls(failures=1), []
    one = calls.policy()
    two = one.with_(on_retry=seen.append)

    (one & two).call(calls.fetch, "a")
    calls.number = 0
    (one & one.with_(attempts=9)).call(calls.fetch, "a")

    assert 1 == len(seen)
    assert 2 == len(calls.retries)


def test_errors_of_hooks_end_the_call():
    """Exceptions of hooks are raised, with the failure of the call as its context."""

    def broken(_: RetryDetails) -> None:
        raise LookupError("the hook")

    calls = HookedCalls()
    with pytest.raises(LookupError, match="the hook") as caught:
        calls.policy().with_(on_retry=broken).call(calls.fetch, "a")
    assert isinstance(caught.value.__context__, ConnectionError)


@pytest.mark.parametrize("field", ["on_retry", "on_give_up"])
def test_hooks_are_functions(field: str):
    """Other values are refused with the name of the field."""
    with pytest.raises(PolicyValueError, match=f"{field}=5: it is a function that takes the RetryDetails, or None"):
        redrive.retry(on=OSError, **{field: 5})  # type: ignore[arg-type]


def test_decorated_functions_know_their_attempt():
    """`redrive.attempt` returns the number of the present attempt; 1 outside of a retried call."""
    numbers = []

    @redrive.retry(on=ConnectionError, attempts=3, backoff=NOW)
    def fetch() -> None:
        numbers.append(redrive.attempt())
        raise ConnectionError

    with pytest.raises(ConnectionError):
        fetch()
    assert [1, 2, 3] == numbers
    assert 1 == redrive.attempt()
