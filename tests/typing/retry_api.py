"""Typical uses of retried calls, read by mypy and never run: what is decorated keeps its type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Self, TypeVar, assert_type, overload

import redrive
from redrive.policy import Backoff, Failure, Policy, Rule
from redrive.policy.outcome import Deferred, GaveUp, Ok, Outcome, Record
from redrive.retrying import Deadline

T = TypeVar("T")

policy = Policy(on=OSError, attempts=3)


# ----------------------------------------------------------------------------------------------------------- decorator


@redrive.retry("5 100ms 2s", on=OSError)
def fetch(url: str, /, times: int = 1, *, quick: bool = False) -> bytes:
    """Parameters of every kind are kept."""
    return url.encode() * times


assert_type(fetch("a", 2, quick=True), bytes)
fetch(1)  # type: ignore[arg-type]
fetch("a", slow=True)  # type: ignore[call-arg]


@redrive.retry(policy)
async def ask(name: str) -> int:
    """Keep the type of a coroutine function."""
    return len(name)


async def use_ask() -> None:
    """Its result is awaited."""
    waiting: Coroutine[Any, Any, int] = ask("a")
    assert_type(await waiting, int)
    await ask(1)  # type: ignore[arg-type]


@redrive.retry(policy, generator="restart")
def rows(after: int = 0) -> Iterator[int]:
    """Keep the type of a generator."""
    yield after


@redrive.retry(policy, generator=redrive.resume(lambda row: row + 1))
async def arows(after: int = 0) -> AsyncIterator[int]:
    """Keep the type of an asynchronous generator."""
    yield after


assert_type(rows(1), Iterator[int])
assert_type(arows(1), AsyncIterator[int])


class Client:
    """Methods keep what they are bound to."""

    @redrive.retry(on=(OSError, "TIMEOUT"), attempts=3, deadline="30s", backoff=Backoff.constant(1))
    def get(self, key: str) -> float:
        """Keep the type of a method."""
        return float(key)

    @redrive.retry(policy)
    async def aget(self, key: str) -> float:
        """Keep the type of an asynchronous method."""
        return float(key)

    @classmethod
    @redrive.retry(policy)
    def make(cls, key: str) -> Client:
        """Keep the type of a class method."""
        return cls()

    @staticmethod
    @redrive.retry(policy)
    def parse(key: str) -> int:
        """Keep the type of a static method."""
        return int(key)

    @redrive.retry(policy)
    def itself(self) -> Self:
        """Keep the type of a method that depends on the class that it is bound to."""
        return self


class Special(Client):
    """A subclass."""


assert_type(Client().get("1"), float)
assert_type(Client.make("1"), Client)
assert_type(Client.parse("1"), int)
assert_type(Special().itself(), Special)
Client().get(1)  # type: ignore[arg-type]


@overload
def load(key: int) -> int: ...
@overload
def load(key: str) -> str: ...
@redrive.retry(policy)
def load(key: int | str) -> int | str:
    """Overloads are kept."""
    return key


assert_type(load(1), int)
assert_type(load("a"), str)


@redrive.retry(policy)
def first(items: list[T]) -> T:
    """So are type variables."""
    return items[0]


assert_type(first([1]), int)

redrive.retry("5 1s", on=OSError)(len)
redrive.retry("5 1s", on=lambda error: "busy" in str(error))(len)
redrive.retry(on=OSError, rules=[Rule(on=TimeoutError, attempts=2)], idempotent=True)(len)
redrive.retry(policy, attempts="3")  # type: ignore[arg-type]
redrive.retry(policy, tries=3)  # type: ignore[call-arg]
redrive.retry(3)  # type: ignore[arg-type]
redrive.retry(policy)(3)  # type: ignore[type-var]


# --------------------------------------------------------------------------------------------------------------- verbs

assert_type(policy.call(fetch, "a", quick=True), bytes)
policy.call(fetch, 1)  # type: ignore[arg-type]
assert_type(policy.outcome(fetch, "a"), Outcome[bytes])


async def use_verbs() -> None:
    """Awaited verbs give what the function gives."""
    assert_type(await policy.acall(ask, "a"), int)
    assert_type(await policy.aoutcome(ask, "a"), Ok[int] | GaveUp | Deferred)
    await policy.acall(ask, 1)  # type: ignore[arg-type]
    await policy.acall(len, "a")  # type: ignore[arg-type]


match policy.outcome(fetch, "a"):
    case Ok(value, record):
        assert_type(value, bytes)
        assert_type(record, Record)
    case GaveUp(error, rule="deadline", why=why):
        assert_type(error, Exception | None)
        assert_type(why, str)
    case Deferred(at=at):
        assert_type(at, datetime)


def use_block() -> bytes | None:
    """Read where an attempt is; code after the block may be reached."""
    for attempt in policy:
        with attempt:
            assert_type(attempt.number, int)
            assert_type(attempt.remaining, float | None)
            assert_type(attempt.deadline, datetime | None)
            assert_type(attempt.previous, Failure | None)
            assert_type(attempt.uid, str)
            attempt.result = fetch("a")
            return fetch("a")
    return None


async def use_ablock() -> None:
    """Do the same with `async for`."""
    async for attempt in policy:
        with attempt:
            assert_type(attempt.number, int)


# -------------------------------------------------------------------------------------------------------------- scopes

assert_type(policy.override(attempts=1), AbstractContextManager[None])
with policy.override(attempts=1), redrive.disabled():
    fetch("a")

assert_type(redrive.deadline(), Deadline | None)
if (left := redrive.deadline()) is not None:
    assert_type(left.remaining, float)
    assert_type(left.at, datetime)


def apply(function: Callable[[str], Awaitable[T]]) -> Coroutine[Any, Any, T]:
    """Pass a decorated function on like the plain one."""
    return policy.acall(function, "a")


async def use_apply() -> None:
    """Its result has the function's type."""
    assert_type(await apply(ask), int)
