"""Values that do not fit the type of their wait: the wait has failed, and a retry of the run waits anew."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Flow, Run, SyncFlow
from redrive.errors import PayloadError
from redrive.stores.operations import checks
from redrive.testing import drain, replay
from tests.runtime.runs.conftest import every_store


def rows(run: Run[Any]) -> list[tuple[str, str, str]]:
    """Return the paths, names and outcomes of the steps of a run."""
    return [(row.path, row.name, str(row.outcome)) for row in run.timeline()]


@pytest.fixture
def misled(app: App) -> Run[int]:
    """Return a run that is dead, because its signal is a text, and its time limit is an hour."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.wait_for("approved", int, timeout="1h")

    run = body.start()
    run.signal("approved", "yes", key="mail-1")
    drain(app)
    assert "dead" == run.state
    assert "the value of the signal 'approved' does not fit int" in str(run.job.refresh().record.error)
    return run


@every_store
def test_a_signal_that_does_not_fit_fails_its_wait(app: App, misled: Run[int]):
    """The wait has failed, and a retry of the run waits for a new signal, which may have the key of the first one."""
    assert [("1", "approved", "failed")] == rows(misled)
    misled.job.retry()
    drain(app, within="1m")
    assert ("ready", [("1", "approved", "waiting")]) == (misled.state, rows(misled))
    assert () == app.store.run(checks.check()).findings
    assert misled.signal("approved", 5, key="mail-1")
    drain(app, within="1m")
    assert 5 == misled.result("2s")


@every_store
def test_a_wait_that_begins_anew_has_its_time_limit(app: App, misled: Run[int]):
    """After a retry the time limit of the wait begins anew."""
    app.clock.advance("2h")
    misled.job.retry()
    drain(app, within="59m")
    assert [("1", "approved", "waiting")] == rows(misled)
    app.clock.advance("59m")
    drain(app, within="2m")
    assert [("1", "approved", "timed_out")] == rows(misled)


@every_store
def test_a_value_is_supplied_for_a_failed_wait(app: App, misled: Run[int]):
    """An operator gives the value instead of a sender, and the store remains consistent."""
    misled.supply("approved", 7)
    drain(app)
    assert 7 == misled.result("2s")
    assert () == app.store.run(checks.check()).findings


@every_store
@pytest.mark.parametrize("colour", ["async", "def"])
def test_a_body_catches_the_error_and_waits_again(app: App, colour: str):
    """The first wait stays failed in each pass; the second one receives the next signal."""
    seen: list[str] = []

    async def body(flow: Flow) -> int:
        while True:
            try:
                return await flow.wait_for("approved", int)
            except PayloadError as error:
                seen.append(str(error))
                await flow.sleep("1m")

    def plain(flow: SyncFlow) -> int:
        while True:
            try:
                return flow.wait_for("approved", int)
            except PayloadError as error:
                seen.append(str(error))
                flow.sleep("1m")

    run = app.workflow(name="body")(body if colour == "async" else plain).start()
    run.signal("approved", "yes")
    run.signal("approved", 5)
    drain(app)

    assert 5 == run.result("2s")
    assert [("1", "approved", "failed"), ("2", "sleep", "ok"), ("3", "approved", "ok")] == rows(run)
    assert 1 == len(set(seen))
    replay(app, run.history())
    fork = run.fork("3")
    fork.signal("approved", 6)
    drain(app)
    assert 6 == fork.result("2s")


@every_store
def test_a_wait_in_a_branch_begins_anew(app: App):
    """A branch that has failed so ends its gather, and a retry repeats the wait alone."""
    calls: list[int] = []

    def note() -> None:
        calls.append(1)

    @app.workflow()
    async def body(flow: Flow) -> list[Any]:
        return await flow.gather(flow.wait_for("approved", int), flow.step(note))

    run = body.start()
    drain(app, within="1s")
    run.signal("approved", "yes")
    drain(app)
    assert "dead" == run.state
    run.job.retry()
    run.signal("approved", 5)
    drain(app)
    assert ([5, None], [1]) == (run.result("2s"), calls)


@every_store
def test_a_named_wait_begins_anew(app: App):
    """The same holds for waits with names."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.named("wait").wait_for("approved", int)

    run = body.start()
    run.signal("approved", "yes")
    drain(app)
    assert ("dead", ["failed"]) == (run.state, [outcome for _, _, outcome in rows(run)])
    run.job.retry()
    run.signal("approved", 5)
    drain(app)
    assert 5 == run.result("2s")


@every_store
def test_an_event_that_does_not_fit_fails_its_wait(app: App):
    """The first emit of a name wins for ever, so that an operator gives the value."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.wait_for_event("rate", int)

    run = body.start()
    app.emit("rate", "high")
    drain(app)
    assert ("dead", [("1", "rate", "failed")]) == (run.state, rows(run))
    run.job.retry()
    drain(app)
    assert "dead" == run.state
    run.supply("1", 3)
    drain(app)
    assert 3 == run.result("2s")


@every_store
@pytest.mark.parametrize("repair", ["code", "value"])
def test_a_result_of_a_child_that_does_not_fit_fails_its_call(app: App, monkeypatch: pytest.MonkeyPatch, repair: str):
    """A child that other code has ended with another type fails the call; code that reads it or a value repairs it."""

    @app.workflow()
    async def child(flow: Flow) -> Any:
        return "many"

    @app.workflow()
    async def other(flow: Flow) -> int:
        return 0

    @app.workflow()
    async def parent(flow: Flow) -> Any:
        return await flow.call(child)

    run = parent.start()
    with monkeypatch.context() as patch:
        patch.setattr(child.returns, "read", other.returns.read)
        drain(app)
    assert ("dead", [("1", "child", "failed")]) == (run.state, rows(run))
    if repair == "code":
        run.job.retry()
    else:
        run.supply("child", 4)
    drain(app)
    assert ("many" if repair == "code" else 4) == run.result("2s")


@every_store
def test_a_misspelt_signal_stands_beside_the_wait(app: App):
    """Why a run waits names the signals that have come and that nothing has read."""

    @app.workflow()
    async def body(flow: Flow) -> int:
        return await flow.wait_for("approved", int)

    run = body.start()
    run.signal("aproved", 1)
    run.signal("aproved", 2)
    drain(app)
    assert run.why.endswith("; unread signals: 'aproved'")
    run.signal("approved", 3)
    drain(app)
    assert (3, False) == (run.result("2s"), "unread" in run.why)
