"""Sleeps, signals, emitted values and child runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Flow, Run
from redrive.errors import ChildFailed, ConfigurationError, PayloadError, TimedOut
from redrive.stores.operations.runs.steps import UNREAD
from redrive.testing import drain
from tests.runtime.runs.conftest import Calls, every_store


def test_a_year_of_sleeps_is_a_jump(app: App):
    """Sleeps end at their due times by the virtual clock, without a real wait."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        for _ in range(73):
            await flow.sleep("5 days")

    run = body.start()

    assert timedelta(days=365) == drain(app).took
    assert "succeeded" == run.state


FAR = datetime(3026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        (
            lambda flow: flow.sleep(timedelta(days=365_000)),
            "flow.sleep(): datetime.timedelta(days=365000) is more than 50",
        ),
        (lambda flow: flow.sleep("100 years 7 weeks"), "flow.sleep(): "),
        (lambda flow: flow.sleep("3000 weeks"), "flow.sleep(): datetime.timedelta(days=21000) is more than 50 years"),
        (
            lambda flow: flow.sleep_until(FAR),
            "flow.sleep_until(): 3026-01-01 00:00:00+00:00 is more than 50 years away",
        ),
        (
            lambda flow: flow.wait_for("paid", timeout=2e9),
            "flow.wait_for('paid'): timeout: 2000000000.0 is more than 50",
        ),
    ],
    ids=["span", "words", "weeks", "instant", "signal"],
)
def test_a_wait_of_more_than_fifty_years_is_refused(app: App, wait: Callable[[Flow], Any], message: str):
    """The error has the line of the call, and the run does not wait."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        await wait(flow)

    run = body.start()
    drain(app)

    assert "dead" == run.state
    assert str(run.job.record.error).startswith(message)


def test_a_pause_of_more_than_fifty_years_is_refused(app: App):
    """An operator who means for ever gives no instant."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.sleep("1h")

    run = body.start()

    with pytest.raises(ConfigurationError, match=r"^run.pause\(until=\): 3026-01-01 .* is more than 50 years away"):
        run.pause(until=FAR)


@pytest.mark.case("D51")
def test_a_sleep_is_not_begun_anew(app: App):
    """Attempts that fail during a sleep wait for the rest of it only."""
    errors = [OSError("no route")]

    @app.workflow(retry="5 10m")
    async def body(flow: Flow) -> None:
        async def other() -> None:
            await flow.sleep("30m")
            if errors:
                raise errors.pop()

        await flow.gather(flow.sleep("1h"), other())

    began = app.clock.now()
    run = body.start()
    drain(app)

    assert "succeeded" == run.state
    assert timedelta(hours=1) == app.clock.now() - began
    assert 2 == len(run.job.attempts)


def test_a_run_sleeps_until_an_instant(app: App):
    """Sleeps until an instant end there; one that has passed does not wait."""

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.sleep_until(datetime(2025, 1, 1, tzinfo=UTC))
        await flow.sleep_until(datetime(2026, 3, 1, tzinfo=UTC))

    body.start()
    drain(app)

    assert datetime(2026, 3, 1, tzinfo=UTC) == app.clock.now()


def test_a_signal_wakes_a_parked_run(app: App):
    """Runs that wait for a signal continue with its value, read as a type."""

    @app.workflow()
    async def body(flow: Flow) -> list[object]:
        return [await flow.wait_for("shipped", int), await flow.wait_for("note")]

    run = body.start()
    drain(app)
    assert "waits for the signal 'shipped'" in run.why
    run.signal("note", {"a": 1})
    run.signal("shipped", 3)
    drain(app)

    assert [3, {"a": 1}] == run.result("2s")


@pytest.mark.case("D52")
def test_signals_are_received_in_their_order_each_once(app: App):
    """Signals of one name are kept before the run waits, in the order of their sending; equal keys are one signal."""

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        received = []
        for _ in range(3):
            received.append(await flow.wait_for("tick", int))
            await flow.sleep("1m")
        return received

    run = body.start()
    assert [True, True, False, True] == [
        run.signal("tick", 1),
        run.signal("tick", 2, key="k"),
        run.signal("tick", 9, key="k"),
        run.signal("tick", 3),
    ]
    drain(app)

    assert [1, 2, 3] == run.result("2s")


@every_store
@pytest.mark.case("W2")
def test_a_timeout_is_recorded_and_stays(app: App, calls: Calls):
    """After a recorded timeout the body takes the same branch in each pass; the late signal stays unread."""
    late = calls.step("late")

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            return await flow.wait_for("shipped", str, timeout="1m")
        except TimedOut:
            await flow.sleep("1h")
            await flow.step(late)
        return "lost"

    run = body.start()
    drain(app, within="2m")
    assert "timed_out" == run.timeline()[0].outcome
    run.signal("shipped", "here")
    drain(app)

    assert "lost" == run.result("2s")
    assert ["late"] == calls
    assert ["shipped"] == [each.name for each in run.signals()]


def test_a_signal_that_came_in_time_is_received_late(app: App):
    """Signals that arrive before the end of the wait count, although no worker was there."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        return await flow.wait_for("shipped", str, timeout="1m")

    run = body.start()
    drain(app, within="1s")
    app.clock.advance("30s")
    run.signal("shipped", "here")
    app.clock.advance("1h")
    drain(app)

    assert "here" == run.result("2s")


def test_a_value_that_does_not_fit_is_an_error_of_the_wait(app: App):
    """Signals with a value of another type raise where the body waits."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.wait_for("shipped", int)
        except PayloadError as error:
            return str(error)
        return ""

    run = body.start()
    run.signal("shipped", "three")
    drain(app)

    assert "the value of the signal 'shipped' does not fit int" in run.result("2s")


def test_an_emitted_value_reaches_every_waiter(app: App):
    """The first value of a name wins; runs that waited and runs that wait later receive it."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.wait_for_event("opened", int)

    early = [body.start(), body.start()]
    drain(app)
    assert [True, False] == [app.emit("opened", 1), app.emit("opened", 2)]
    late = body.start()
    drain(app)

    assert [1, 1, 1] == [run.result("2s") for run in (*early, late)]


def test_a_wait_for_an_event_has_a_timeout(app: App):
    """Waits for a value that is not emitted in time raise `TimedOut`."""

    @app.workflow()
    async def body(flow: Flow) -> str:
        try:
            await flow.wait_for_event("opened", timeout="1m")
        except TimedOut as error:
            return str(error)
        return ""

    run = body.start(id="r")
    drain(app)

    assert "body r (version 1): a wait for the event `opened` ended without an answer" == run.result("2s")


def test_a_child_run_returns_its_result(app: App, calls: Calls):
    """Parents wait for their children without a worker; a child has an id of its own and runs once."""
    step = calls.step("step")

    @app.workflow()
    async def child(flow: Flow, number: int) -> int:
        await flow.sleep("1h")
        return await flow.step(step, number)

    @app.workflow()
    async def parent(flow: Flow) -> list[int]:
        return await flow.gather(flow.call(child, 1), flow.call(child, 2))

    run = parent.start(id="p")
    drain(app)

    assert [1, 2] == run.result("2s")
    assert ["step", "step"] == calls
    assert ["parent/p/1.0.1", "parent/p/1.1.1"] == sorted(each.id for each in app.runs.select(workflow="child"))


@every_store
def test_parents_with_one_id_have_children_of_their_own(app: App, calls: Calls):
    """Runs of two workflows may have one id, such as the number of an order, and a run of a user that of a child."""
    send = calls.step("send")

    @app.workflow()
    async def notify(flow: Flow, number: int) -> int:
        return await flow.step(send, number)

    @app.workflow()
    async def checkout(flow: Flow, number: int) -> int:
        return await flow.call(notify, number)

    @app.workflow()
    async def refund(flow: Flow, number: int) -> int:
        return await flow.call(notify, number)

    notify.start(1, id="checkout/42/1")
    runs = [checkout.start(1, id="42"), refund.start(1, id="42")]
    drain(app)

    assert [1, 1] == [run.result("2s") for run in runs]
    assert ["send"] * 3 == calls
    children = [[each.id for each in app.runs.select(parent=run)] for run in runs]
    assert [["checkout/42/1~1"], ["refund/42/1"]] == children


@pytest.mark.parametrize("repaired", [False, True])
def test_a_parent_that_is_retried_repeats_no_child_that_has_succeeded(app: App, calls: Calls, repaired: bool):
    """The call of a dead child starts another child, unless an operator has repaired the first one."""
    work = calls.step("work", OSError("a"))

    @app.workflow()
    async def child(flow: Flow) -> int:
        return await flow.step(work, 7)

    @app.workflow()
    async def parent(flow: Flow) -> int:
        return await flow.call(child)

    run = parent.start(id="p")
    drain(app)
    (dead,) = app.runs.select(parent=run)
    if repaired:
        app.job(dead.job_id).retry()
        drain(app)
    run.job.retry()
    drain(app)

    assert (7, ["work", "work"]) == (run.result("2s"), calls)
    ids = ["parent/p/1"] if repaired else [f"parent/p/1~{dead.job_id}", "parent/p/1"]
    assert ids == [each.id for each in app.runs.select(parent=run)]


def test_a_child_that_fails_raises_in_its_parent(app: App):
    """Errors of children are `ChildFailed` with the job and the reason of the child."""

    def fail() -> None:
        raise OSError("no route")

    @app.workflow()
    async def child(flow: Flow) -> None:
        await flow.step(fail)

    @app.workflow()
    async def parent(flow: Flow) -> str:
        try:
            await flow.call(child)
        except ChildFailed as error:
            return str(error)
        return ""

    run = parent.start()
    drain(app)

    assert "of child failed for good: no route" in run.result("2s")


def test_signals_behind_many_others_are_received(app: App):
    """Runs receive each signal in its order, although they have more unread ones than one claim reads."""
    many = 2 * UNREAD + 50

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        first = await flow.wait_for("late", int)
        return [first, *[await flow.wait_for("early", int) for _ in range(many)]]

    run = body.start()
    for number in range(many):
        run.signal("early", number)
    run.signal("late", -1)
    drain(app)

    assert list(range(-1, many)) == run.result("2s")


def test_a_live_wait_receives_a_signal_behind_many_others(app: App):
    """Branches that wait while another one works receive a signal behind unread ones that no branch waits for."""
    received = asyncio.Event()

    async def works() -> None:
        for number in range(UNREAD):
            app.find("body").run("r").signal("other", number)
        app.find("body").run("r").signal("wanted", 7)
        await received.wait()

    async def note(number: int) -> int:
        received.set()
        return number

    @app.workflow()
    async def body(flow: Flow) -> list[int | None]:
        async def waits() -> int:
            return await flow.step(note, await flow.wait_for("wanted", int))

        return await flow.gather(flow.step(works), waits())

    run = body.start(id="r")
    drain(app)

    assert [None, 7] == run.result("2s")


@every_store
@pytest.mark.parametrize("paused", [False, True])
def test_the_deadline_ends_a_run_that_waits(app: App, calls: Calls, paused: bool):
    """A run that waits, for whatever it is, ends at its deadline and undoes its steps, also while it is paused."""
    book, cancel = calls.step("book"), calls.step("cancel")
    fails = calls.step("fails", *[OSError("a")] * 9)

    @app.workflow()
    async def child(flow: Flow) -> None:
        await flow.wait_for("go")

    waits: dict[str, Callable[[Flow], Any]] = {
        "signal": lambda flow: flow.wait_for("go"),
        "long signal": lambda flow: flow.wait_for("go", timeout="10d"),
        "event": lambda flow: flow.wait_for_event("fact"),
        "sleep": lambda flow: flow.sleep("10d"),
        "child": lambda flow: flow.call(child),
        "try": lambda flow: flow.step(fails, retry="9 1d"),
        "branches": lambda flow: flow.gather(flow.wait_for("go"), flow.sleep("10d")),
    }

    @app.workflow(deadline="1h")
    async def body(flow: Flow, what: str) -> None:
        await flow.step(book, undo=cancel)
        await waits[what](flow)

    runs = [body.start(what, id=what) for what in waits]
    drain(app, within=0)
    if paused:
        for run in runs:
            run.pause()
    drain(app, within="2h")
    assert [("DEADLINE", timedelta(hours=1))] * len(runs) == [lived(run) for run in runs]
    assert len(runs) == calls.count("cancel")


def lived(run: Run[Any]) -> tuple[str | None, timedelta]:
    """Return why a run is dead, and the time from its start to its end."""
    record = run.job.refresh().record
    assert record.finished_at is not None
    assert record.started_at is not None
    return record.reason, record.finished_at - record.started_at


@every_store
def test_the_deadline_ends_a_run_that_is_paused_while_it_runs(app: App, calls: Calls):
    """A pause that comes during a step has no later end than the deadline of the run."""
    never = calls.step("never")

    @app.workflow(deadline="1h")
    async def body(flow: Flow) -> None:
        await flow.step(run.pause)
        await flow.step(never)

    run = body.start()
    drain(app, within="30m")
    assert ("ready", "paused") == (run.state, run.job.refresh().record.hold)
    drain(app, within="2h")
    assert ("DEADLINE", timedelta(hours=1)) == lived(run)
    assert [] == calls
