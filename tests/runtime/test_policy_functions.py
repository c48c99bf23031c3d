"""A worker and the functions of policies."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from redrive import App, Backoff, Policy, RetryDetails
from tests.runtime.test_quota import run


def test_a_worker_calls_predicates_and_hooks(filed: App):
    """Workers retry as the predicate decides, and have called the hooks of all ends when they stop."""
    seen: list[tuple[str, int, Any]] = []
    threads = []

    async def give_up(details: RetryDetails) -> None:
        seen.append(("gave up", details.attempt, details.kwargs))

    def retried(details: RetryDetails) -> None:
        threads.append(threading.current_thread())
        seen.append(("retry", details.attempt, details.kwargs))

    @filed.task(
        retry=Policy(
            on=lambda error: "busy" in str(error),
            attempts=2,
            backoff=Backoff.constant(0),
            on_retry=retried,
            on_give_up=give_up,
        )
    )
    def send(text: str) -> None:
        raise OSError(text)

    job = send.enqueue("busy")
    other = send.enqueue("gone")
    run(filed, until_empty=True)

    assert ["dead", "dead"] == [job.state, other.state]
    assert [2, 1] == [len(job.attempts), len(other.attempts)]
    expected = [("gave up", 1, {"text": "gone"}), ("gave up", 2, {"text": "busy"}), ("retry", 1, {"text": "busy"})]
    assert expected == sorted(seen)
    # A hook that blocks must not stop the event loop.
    assert threading.main_thread() not in threads


def test_stop_iteration_of_a_hook_is_logged(filed: App, caplog: pytest.LogCaptureFixture):
    """A future cannot carry it, so that the worker would wait for the hook forever when it stops."""

    def retried(_: RetryDetails) -> None:
        next(iter(()))

    @filed.task(retry=Policy(attempts=2, backoff=Backoff.constant(0), on_retry=retried))
    def send() -> None:
        raise OSError("busy")

    job = send.enqueue()
    run(filed, until_empty=True)

    assert "dead" == job.state
    assert "the function raised StopIteration" in caplog.text
