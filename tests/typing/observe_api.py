"""Typical sinks and limiters that follow their target. mypy and pyright read this; nothing runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import assert_type

from redrive import observe
from redrive.observe import CallGaveUp, CallRetryScheduled, Event
from redrive.policy import Failure
from redrive.retrying import Adaptive, Limiter, Shedding


@observe.add
def count(event: Event) -> None:
    """Receive events."""
    match event:
        case CallRetryScheduled(name=name, rule=rule, delay=delay):
            assert_type((name, rule, delay), tuple[str, str, timedelta])
        case CallGaveUp(failure=failure):
            assert_type(failure, Failure | None)


@contextmanager
def trace(event: Event) -> Iterator[None]:
    """Wrap all waits."""
    assert_type((event.name, event.level), tuple[str, int])
    yield


def some(event: Event) -> AbstractContextManager[None] | None:
    """Wrap some of the waits."""
    return trace(event) if isinstance(event, CallRetryScheduled) else None


count.remove()
events: list[Event] = []
with observe.add(trace) as sink, observe.add(some), observe.add(observe.log), observe.only(events.append):
    sink(events[0])

observe.add(print)

limiter = Limiter(rate=Adaptive(OSError, on_result=lambda status: bool(status == 429)), shed=Shedding(2, window="1m"))
assert_type(limiter.rate, float | None)
assert_type(limiter.rejection, float)


@limiter
def fetch(url: str) -> bytes:
    """Keep the type of a limited function."""
    return url.encode()


assert_type(fetch("a"), bytes)
