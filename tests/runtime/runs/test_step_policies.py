"""Policies of steps: hooks, predicates, breakers, deadlines and hints, as for jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, Flow, Policy, RetryAfter, RetryDetails
from redrive.policy.breaker import BreakerSettings
from redrive.retrying import RatioBudget, breaker, budget
from redrive.retrying.shared import isolated
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store

POLICY = Policy.parse("2 1s").with_(jitter="none")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test has breakers and budgets of its own."""
    with isolated():
        yield


def failing(app: App, step: Any, policy: Policy, *args: int, undo: Any = None) -> Any:
    """Start a run of one step, which fails for good, and return its error."""

    @app.workflow(name="body")
    async def body(flow: Flow) -> str:
        try:
            await flow.step(step, *args, retry=policy, undo=undo)
        except Exception as error:  # noqa: BLE001 - returned
            return f"{type(error).__name__}: {error}"
        return ""

    run = body.start()
    drain(app)
    return run.result("2s")


def test_hooks_of_a_step_get_its_tries(app: App, calls: Calls):
    """`on_retry` gets each try that is followed by another one, and `on_give_up` the last."""
    seen: list[RetryDetails] = []
    ends: list[RetryDetails] = []

    async def end(details: RetryDetails) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - not a sleep
        ends.append(details)

    step = calls.step("charge", *(OSError(text) for text in ("a", "b", "c")))

    assert "OSError: c" == failing(app, step, POLICY.with_(on_retry=seen.append, on_give_up=end), 7)
    assert [
        ("body.charge", (7,), number, text, timedelta(seconds=wait))
        for number, text, wait in ((1, "a", 1), (2, "b", 2))
    ] == [(each.function, each.args, each.attempt, str(each.error), each.delay) for each in seen]
    assert [(3, "c", None, "attempts")] == [(each.attempt, str(each.error), each.delay, each.rule) for each in ends]
    assert "step charge failed for good: c" == ends[0].why
    assert timedelta(seconds=3) <= ends[0].elapsed


def test_a_hook_that_raises_changes_nothing(app: App, calls: Calls, caplog: pytest.LogCaptureFixture):
    """Errors of hooks are logged, and the step goes on."""

    def breaks(details: RetryDetails) -> None:
        raise ValueError("the pager is off")

    assert "" == failing(app, calls.step("charge", OSError("a")), POLICY.with_(on_retry=breaks))
    assert "a hook of its policy failed" in caplog.text


def test_hooks_of_undos_are_called(app: App, calls: Calls):
    """The undo of a step has the policy of its step, with its hooks."""
    seen: list[str] = []
    policy = POLICY.with_(on_retry=lambda details: seen.append(f"{details.function} {details.error}"))
    charge, refund = calls.step("charge"), calls.step("refund", OSError("closed"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(charge, undo=refund, retry=policy)
        raise ValueError("no")

    body.start()
    drain(app)

    assert ["body.refund closed"] == seen


def test_rejected_results_are_tried_again(app: App):
    """`on_result` rejects a result, the hooks get it, and the last one is the error of the step."""
    made = iter([1, 2, 3])
    seen: list[int] = []

    def poll() -> int:
        return next(made)

    policy = POLICY.with_(on_result=lambda value: value < 9, on_retry=lambda details: seen.append(details.value))

    assert "StepFailed: step poll failed: result 3" == failing(app, poll, policy)
    assert [1, 2] == seen


def test_a_dead_run_shows_where_its_step_failed(app: App):
    """The traceback of a run begins in the body, and names the place in the function of the step."""

    async def charge() -> None:
        raise ConnectionError("bank: busy")

    @app.workflow(name="body", retry="0")
    async def body(flow: Flow) -> None:
        await flow.step(charge, retry="0")

    run = body.start()
    drain(app)
    (row,) = run.timeline()
    (attempt,) = app.job(run.job.id).attempts
    first, *_, note = (attempt.traceback or "").strip().splitlines()[1:]

    assert re.fullmatch(r'  File ".*test_step_policies.py", line \d+, in body', first)
    assert re.fullmatch(r"step charge failed at runs/test_step_policies.py:\d+ in charge", note)
    assert str(row.error) == f"bank: busy (at {note.removeprefix('step charge failed at ')})"


def test_a_predicate_chooses_the_failures_of_a_step(app: App, calls: Calls):
    """Failures that ``on`` does not name are final."""
    step = calls.step("charge", OSError("busy"), OSError("gone"))

    assert "OSError: gone" == failing(app, step, POLICY.with_(on=lambda error: str(error) == "busy"))
    assert ["charge", "charge"] == calls


@every_store
def test_an_open_breaker_spends_no_tries(app: App, calls: Calls):
    """While the breaker of its policy is open, a step waits without a try, and its run without a worker."""
    breaker("stripe", BreakerSettings(volume_threshold=2, error_threshold=50, rolling_window="10s", sleep_window="60s"))
    step = calls.step("charge", OSError("a"), OSError("b"))
    began = app.clock.now()

    assert "" == failing(app, step, POLICY.with_(breaker="stripe"))
    assert ["charge", "charge", "charge"] == calls
    assert timedelta(seconds=60) <= app.clock.now() - began
    row = app.runs.get("body", app.runs.select()[0].id).timeline()[0]
    assert 3 == row.tries


def test_a_step_ends_at_its_deadline(app: App, calls: Calls):
    """The deadline of a step counts from its first try."""
    step = calls.step("charge", *(OSError(text) for text in "abcdef"))

    assert "OSError: c" == failing(app, step, Policy.parse("9 4s 4s").with_(jitter="none", deadline="10s"))


def test_a_step_obeys_hints(app: App):
    """Steps that raise `RetryAfter` are tried again after that time; a longer one than ``max_hint`` is final."""
    hints = [RetryAfter("2h"), RetryAfter("9d")]

    def charge() -> None:
        raise hints.pop(0)

    began = app.clock.now()

    assert failing(app, charge, POLICY.with_(max_hint="1d")).startswith("RetryAfter")
    assert timedelta(hours=2) <= app.clock.now() - began < timedelta(hours=3)


def test_a_budget_does_not_limit_steps(app: App, calls: Calls):
    """Budgets limit retries in process; the retries of steps, as those of jobs, are bounded by their policies."""
    budget("shared", RatioBudget(0.1, minimum=0))
    step = calls.step("charge", OSError("a"), OSError("b"))

    assert "" == failing(app, step, POLICY.with_(budget="shared"))
    assert 3 == len(calls)
