"""The ends of runs: each but success takes finished steps back; a run that starts again executes those anew."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Cancel, CancelRequested, Filter, Flow, GiveUp, Policy, SyncFlow
from redrive.app.flows.workflow import Workflow
from redrive.engine.lifecycle import State
from redrive.errors import FlowMisused, IllegalMove, PayloadError
from redrive.testing import VirtualClock, drain, replay
from tests.runtime.helpers import UserBaseException, app_on, ended, working
from tests.runtime.runs.conftest import Calls, every_store

Ending = Callable[[Flow], Any]


def charge(calls: Calls) -> Callable[[int], str]:
    """Return a step with an effect that `refund` takes back."""

    def charge(number: int = 0) -> str:
        calls.append("charge")
        return f"charge {number}"

    return charge


def refund(calls: Calls) -> Callable[[str], None]:
    """Return the undo of `charge`."""

    def refund(receipt: str) -> None:
        calls.append(f"refund {receipt}")

    return refund


async def _raises(flow: Flow) -> None:
    raise ValueError("a bug")


async def _gives_up(flow: Flow) -> None:
    raise GiveUp("no seat")


async def _cancels(flow: Flow) -> None:
    raise Cancel("by itself")


async def _exits(flow: Flow) -> None:
    sys.exit(1)


async def _exits_in_a_branch(flow: Flow) -> None:
    async def leaves() -> None:
        sys.exit(1)

    await flow.gather(leaves(), flow.sleep("1s"), on_error="collect")


async def _cancels_its_task(flow: Flow) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def _takes_too_long(flow: Flow) -> None:
    await asyncio.Event().wait()


async def _returns_too_much(flow: Flow) -> str:
    return "x" * 1_200_000


async def _returns_a_text(flow: Flow) -> int:
    text: Any = "x"
    number: int = text
    return number


async def _returns_an_object(flow: Flow) -> Any:
    return object()


async def _awaits_no_call(flow: Flow) -> None:
    flow.step(_none)


async def _gathers_by_asyncio(flow: Flow) -> None:
    await asyncio.gather(flow.step(_none))


async def _passes_an_object(flow: Flow) -> None:
    await flow.step(_echo, object())


async def _passes_its_deadline(flow: Flow) -> None:
    await flow.sleep("2h")


def _none() -> None:
    """Do nothing."""


def _echo(value: Any) -> Any:
    return value


ENDS: tuple[tuple[Ending, str], ...] = (
    (_raises, "a bug"),
    (_gives_up, "no seat"),
    (_cancels, "by itself"),
    (_exits, "1"),
    (_exits_in_a_branch, "1"),
    (_cancels_its_task, "the handler, or something that it awaited, was cancelled"),
    (_takes_too_long, "the attempt took longer than 0.05 s"),
    (_returns_too_much, "1,200,002 bytes of JSON"),
    (_returns_a_text, 'the result "x" does not match'),
    (_returns_an_object, "object cannot be written as JSON"),
    (_awaits_no_call, "a call of the flow was never awaited"),
    (_gathers_by_asyncio, "called from a task or a thread outside the flow"),
    (_passes_an_object, "object cannot be written as JSON"),
    (_passes_its_deadline, "the deadline of the run has passed"),
)


@every_store
@pytest.mark.parametrize(("ending", "why"), ENDS, ids=[ending.__name__ for ending, _ in ENDS])
def test_each_end_but_success_undoes(app: App, calls: Calls, ending: Ending, why: str):
    """Finished steps are taken back once, and the run keeps the error with which it ended."""
    book, undo = charge(calls), refund(calls)

    async def body(flow: Flow) -> Any:
        await flow.step(book, 7, undo=undo)
        return await ending(flow)

    body.__annotations__["return"] = ending.__annotations__["return"]
    timeout = "50ms" if ending is _takes_too_long else "10m"
    run = app.workflow(name="body", timeout=timeout, deadline="1h")(body).start()
    drain(app)
    job = run.job.refresh().record

    assert ["charge", "refund charge 7"] == calls
    assert ("cancelled" if ending is _cancels else "dead") == run.state
    text = job.note if ending is _cancels else job.error
    assert why in (text or "")
    assert "charge undone" in (text or "")


@every_store
def test_a_body_in_a_thread_undoes_when_its_result_does_not_fit(app: App, calls: Calls):
    """Plain functions as bodies end like coroutines."""
    book, undo = charge(calls), refund(calls)

    @app.workflow()
    def body(flow: SyncFlow) -> int:
        flow.step(book, 7, undo=undo)
        wrong: Any = "x"
        number: int = wrong
        return number

    run = body.start()
    drain(app)

    assert (["charge", "refund charge 7"], "dead") == (calls, run.state)


def test_a_body_in_a_thread_takes_no_step_after_its_timeout(app: App, calls: Calls):
    """Its thread cannot be stopped, so its next call of the flow is refused; its steps are taken back."""
    book, undo = charge(calls), refund(calls)
    ended, refused = threading.Event(), threading.Event()

    @app.workflow(timeout="50ms")
    def body(flow: SyncFlow) -> None:
        flow.step(book, undo=undo)
        ended.wait(10)
        try:
            flow.step(book)
        except FlowMisused:
            refused.set()

    run = body.start()
    drain(app)
    ended.set()

    assert refused.wait(10)
    assert (["charge", "refund charge 0"], "dead") == (calls, run.state)


def test_a_replay_of_a_history_calls_no_undo(app: App, calls: Calls):
    """Histories of runs that take their steps back are compared with the code, and nothing is called."""
    book = charge(calls)
    undo = calls.step("undo", *(OSError("closed") for _ in range(9)))

    def undo_it(receipt: str) -> None:
        undo(0)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, 1, undo=undo_it)
        await flow.step(book, 2, undo=undo_it, retry="9 1h")
        raise GiveUp("no seat")

    run = body.start()
    drain(app, within="30m")
    before = list(calls)
    replay(app, run.history())
    run.cancel()
    run.cancel()
    replay(app, run.history())

    assert ("cancelled", before) == (run.state, calls)


def test_a_predicate_that_makes_an_error_final_undoes(app: App, calls: Calls):
    """Whether the run ends is decided with the predicate of its policy."""
    book, undo = charge(calls), refund(calls)

    @app.workflow(retry=Policy.parse("5 1s").with_(on=lambda error: not isinstance(error, ValueError)))
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        raise ValueError("final")

    run = body.start()
    drain(app)

    assert (["charge", "refund charge 0"], "dead") == (calls, run.state)


def test_an_undo_that_exits_or_cannot_read_its_value_does_not_stop_the_others(app: App, calls: Calls):
    """Each undo fails by itself, whatever it raises."""

    def leaves(receipt: str) -> None:
        calls.append("leaves")
        sys.exit(2)

    book, undo = charge(calls), refund(calls)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, 1, undo=undo)
        await flow.step(book, 2, undo=leaves)
        raise GiveUp("no seat")

    run = body.start()
    drain(app)

    assert ["charge", "charge", "leaves", "refund charge 1"] == calls
    assert "no seat (charge not undone: 2, charge undone)" == run.job.refresh().record.error


_ODD = [KeyboardInterrupt, SystemExit, GeneratorExit, UserBaseException, asyncio.CancelledError, StopIteration]


@pytest.mark.parametrize("error", _ODD)
@pytest.mark.parametrize("colour", ["def", "async def", "sync body"])
def test_an_undo_keeps_the_first_error_of_the_run_whatever_it_raises(
    app: App, calls: Calls, error: type[BaseException], colour: str
):
    """The failed undo is recorded, the others run, and the run has the error with which its body ended."""

    def fails(receipt: str) -> None:
        calls.append("fails")
        raise error("odd")

    async def fails_async(receipt: str) -> None:
        fails(receipt)

    book, undo = charge(calls), refund(calls)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, 1, undo=undo)
        await flow.step(book, 2, undo=fails_async if colour == "async def" else fails)
        raise GiveUp("no seat")

    @app.workflow()
    def sync_body(flow: SyncFlow) -> None:
        flow.step(book, 1, undo=undo)
        flow.step(book, 2, undo=fails)
        raise GiveUp("no seat")

    run = (sync_body if colour == "sync body" else body).start()
    drain(app)

    assert ["charge", "charge", "fails", "refund charge 1"] == calls
    assert str(run.job.refresh().record.error).startswith("no seat (charge not undone: ")


UNSTORED = {"no JSON": object(), "another type": "text", "too large": ["x" * 1_000] * 10_000}


@every_store
@pytest.mark.parametrize("what", UNSTORED)
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_step_whose_result_cannot_be_stored_is_undone(app: App, calls: Calls, what: str, colour: str):
    """The undo receives what the function has returned, although the step has failed because of it."""
    value, undone = UNSTORED[what], []

    def charge() -> list[str]:
        calls.append("charge")
        return value  # type: ignore[return-value]

    async def acharge() -> list[str]:
        return charge()

    def undo(receipt: Any) -> None:
        undone.append(receipt)

    @app.workflow(steps="3 1s")
    async def body(flow: Flow) -> None:
        await flow.step(charge if colour == "def" else acharge, undo=undo)

    run = body.start()
    drain(app)

    assert (["charge"], [value], "dead") == (calls, undone, run.state)
    assert (run.job.refresh().record.error or "").endswith("charge undone)")


@every_store
def test_a_lost_result_is_named_as_not_undone(app: App, calls: Calls):
    """A later pass does not have what the function has returned: the run, doctor and the advice name the step."""

    def charge() -> int:
        calls.append("charge")
        return object()  # type: ignore[return-value]

    def undo(receipt: int) -> None:
        calls.append("undo")

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            await flow.step(charge, undo=undo)
        except PayloadError:
            await flow.sleep("1m")
            raise

    run = body.start(id="a")
    drain(app)
    error = run.job.refresh().record.error
    (found,) = (each for each in app.database.diagnose() if each.check == "undos")
    run.supply("u1")

    assert ["charge"] == calls
    assert str(error).endswith("(charge not undone: what the step returned could not be stored, and is lost)")
    assert "not undone: charge (1)" in found.text
    assert "redrive runs supply" in str(found.advice)
    assert "undos" not in [each.check for each in app.database.diagnose()]


@every_store
@pytest.mark.parametrize("how", ["run", "job", "app", "filter", "operation"])
@pytest.mark.parametrize("waits", ["sleeps", "paused", "retries"])
def test_each_cancellation_undoes(app: App, calls: Calls, how: str, waits: str):
    """Cancelling the job of a run, or many jobs, is cancelling the run: it is due, and takes its steps back."""
    book, undo = charge(calls), refund(calls)

    @app.workflow(retry="9 1h")
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        if waits == "retries":
            raise OSError("for now")
        await flow.sleep("10d")

    run = body.start()
    drain(app, within="1m")
    if waits == "paused":
        run.pause()
        drain(app, within="1m")
    match how:
        case "run":
            assert run.cancel("enough")
        case "job":
            assert run.job.cancel("enough")
        case "app":
            assert app.jobs.cancel(Filter(ids=(run.job.id,)), why="enough") == (run.job.id,)
        case "filter":
            assert app.jobs.cancel(Filter(task="body"), why="enough") == (run.job.id,)
        case _:
            found = app.operations.preview("cancel", Filter(task="body"), why="enough")
            app.operations.finish(app.operations.start(found).id)
    assert ("ready", ["charge"]) == (run.state, calls)
    drain(app, within="1m")

    assert (["charge", "refund charge 0"], "cancelled") == (calls, run.state)
    assert "cancelled: enough (charge undone)" in run.why


@every_store
def test_a_second_cancellation_before_the_undo_leaves_the_undo(app: App, calls: Calls):
    """The body does not clean up any more, and its steps are taken back."""
    book, undo, clean = charge(calls), refund(calls), calls.step("clean")

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        try:
            await flow.sleep("10d")
        finally:
            await flow.step(clean)

    run = body.start()
    drain(app, within="1m")
    assert [True, True] == [run.cancel("enough"), run.cancel("at once")]
    assert "ready" == run.state
    drain(app, within="1m")

    assert (["charge", "refund charge 0"], "cancelled") == (calls, run.state)
    assert "at once (charge undone)" in run.why


@every_store
def test_a_second_cancellation_of_a_held_run_undoes_where_the_code_fits_and_ends_it_otherwise(app: App, calls: Calls):
    """A held run that cannot be replayed names what was not undone; one whose code is back takes its steps back."""
    book, undo, other = charge(calls), refund(calls), calls.step("other")

    async def old(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        await flow.sleep("1h")

    async def new(flow: Flow) -> None:
        await flow.step(other)

    first = app.workflow(name="body")(old)
    runs = [first.start(), first.start()]
    drain(app, within="1m")
    app.tasks.pop("body")
    app.workflow(name="body")(new)
    drain(app, within="3h")
    for run in runs:
        run.cancel("enough")
    drain(app, within="10m")
    assert ["held", "held"] == [str(run.job.refresh().record.hold) for run in runs]
    runs[0].cancel("now")
    drain(app, within="10m")
    assert "cancelled" == runs[0].state
    assert "not undone, as far as they have undos: charge (1); body " in runs[0].why
    app.tasks.pop("body")
    app.workflow(name="body")(old)
    runs[1].cancel("now")
    drain(app, within="10m")

    assert (["charge", "charge", "refund charge 0"], "cancelled") == (calls, runs[1].state)


def test_a_second_cancellation_names_what_was_not_undone(app: App, calls: Calls):
    """The steps whose undos have not ended are in the reason, and their undos are recorded as failed."""
    book, undo = charge(calls), refund(calls)
    fails = calls.step("fails", *(OSError("closed") for _ in range(9)))

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, 1, undo=undo)
        await flow.step(book, 2, undo=lambda_named(fails), retry="9 1h")
        await flow.step(book, 3, undo=undo)
        raise GiveUp("no seat")

    run = body.start()
    drain(app, within="30m")
    assert ["refund charge 3", "fails"] == calls[3:]
    assert [True, True, False] == [run.cancel("enough"), run.cancel("now"), run.cancel()]

    assert "cancelled" == run.state
    assert "cancelled: now; not undone: charge (2), charge (1)" in run.why
    assert {"u1": "failed", "u2": "failed", "u3": "ok"} == {
        row.path: str(row.outcome) for row in run.timeline() if row.path.startswith("u")
    }


def lambda_named(step: Callable[[int], int]) -> Callable[[str], int]:
    """Return an undo that calls a recorded step."""

    def fails(receipt: str) -> int:
        return step(0)

    return fails


# ------------------------------------------------------------------------------------------------------ once more


def _directly(flow: Flow, fails: Callable[[int], int]) -> Any:
    return flow.step(fails)


async def _behind_a_sleep(flow: Flow, fails: Callable[[int], int]) -> None:
    await flow.sleep("1m")
    await flow.step(fails)


async def _in_the_body(flow: Flow, fails: Callable[[int], int]) -> None:
    fails(0)


async def _in_a_gather(flow: Flow, fails: Callable[[int], int]) -> None:
    await flow.gather(flow.step(fails), flow.sleep("1s"))


async def _in_a_first(flow: Flow, fails: Callable[[int], int]) -> None:
    await flow.first(flow.step(fails), flow.sleep("1h"))


async def _after_a_reaction(flow: Flow, fails: Callable[[int], int]) -> None:
    try:
        await flow.step(fails)
    except OSError:
        await flow.step(_none)
        raise


SHAPES = (_directly, _behind_a_sleep, _in_the_body, _in_a_gather, _in_a_first, _after_a_reaction)


@every_store
@pytest.mark.parametrize("how", ["retry", "redrive", "fork"])
@pytest.mark.parametrize("shape", SHAPES, ids=[each.__name__ for each in SHAPES])
def test_an_undone_step_is_never_reused(app: App, calls: Calls, shape: Any, how: str):
    """A retry, a redrive and a fork of an undone run execute what was undone anew, each time, and no other step."""
    book, undo, keep = charge(calls), refund(calls), calls.step("keep")
    fails = calls.step("fails", OSError("no carrier"), OSError("no carrier"))

    @app.workflow()
    async def body(flow: Flow) -> str:
        receipt = await flow.step(book, 7, undo=undo)
        await flow.step(keep)
        await shape(flow, fails)
        return receipt

    run = body.start()
    drain(app, within="2h")
    for _ in range(2):
        assert ("dead", "no carrier (charge undone)") == (run.state, run.job.refresh().record.error)
        assert 1 == sum(each.error == "no carrier (charge undone)" for each in run.job.attempts[-1:])
        if how == "retry":
            run.job.retry()
        elif how == "redrive":
            assert (run.job.id,) == app.jobs.redrive(Filter(ids=(run.job.id,))).ids
        else:
            run = run.fork(from_step="fails" if any(row.name == "fails" for row in run.timeline()) else "keep")
        drain(app, within="2h")

    assert ("succeeded", "charge 7") == (run.state, run.result("2s"))
    assert (3, 2, 3) == tuple(calls.count(each) for each in ("charge", "refund charge 7", "fails"))
    if how != "fork":
        assert 1 == calls.count("keep")


@every_store
def test_a_value_for_the_failed_step_of_an_undone_run(app: App, calls: Calls):
    """The run goes on with the value, executes what was undone anew, and does not call the step."""
    book, undo, fails = charge(calls), refund(calls), calls.step("fails", GiveUp("no carrier"))

    @app.workflow()
    async def body(flow: Flow) -> Any:
        await flow.step(book, 7, undo=undo)
        return await flow.step(fails)

    run = body.start()
    drain(app)
    run.supply("fails", 5)
    drain(app)

    assert (5, ["charge", "fails", "refund charge 7", "charge"]) == (run.result("2s"), calls)


async def _gathered(flow: Flow, book: Any, undo: Any, fails: Any) -> Any:
    return await flow.gather(flow.step(book, 7, undo=undo), flow.step(fails))


async def _nested(flow: Flow, book: Any, undo: Any, fails: Any) -> Any:
    async def inner() -> Any:
        return (await flow.gather(flow.sleep("1h"), flow.step(fails)))[1]

    return await flow.gather(flow.step(book, 7, undo=undo), inner())


async def _collected(flow: Flow, book: Any, undo: Any, fails: Any) -> Any:
    async def inner() -> Any:
        (found,) = await flow.gather(flow.step(fails), on_error="collect")
        if isinstance(found, Exception):
            raise found
        return found

    return await flow.gather(flow.step(book, 7, undo=undo), inner())


async def _raced(flow: Flow, book: Any, undo: Any, fails: Any) -> Any:
    _, found = await flow.first(flow.gather(flow.step(book, 7, undo=undo), flow.step(fails)), flow.sleep("1h"))
    return found


@every_store
@pytest.mark.parametrize("shape", [_gathered, _nested, _collected, _raced])
def test_a_value_for_a_branch_that_failed_lets_the_others_go_on(app: App, calls: Calls, shape: Any):
    """What was dropped when the branch failed is executed, and the call returns the results of all branches."""
    book, undo, fails = charge(calls), refund(calls), calls.step("fails", GiveUp("no carrier"))

    @app.workflow()
    async def body(flow: Flow) -> Any:
        return await shape(flow, book, undo, fails)

    run = body.start()
    drain(app)
    assert ("dead", ["charge", "fails", "refund charge 7"]) == (run.state, calls)
    run.supply("fails", 5)
    drain(app, within="2h")

    assert (["charge 7", 5], ["charge", "fails", "refund charge 7", "charge"]) == (run.result("2s"), calls)


@every_store
def test_a_value_for_an_item_that_failed_lets_the_others_go_on(app: App, calls: Calls):
    """Items that were dropped or had not begun are mapped, and the undone ones again."""
    undo = refund(calls)

    def pack(item: str) -> str:
        calls.append(item)
        if item == "b":
            raise GiveUp("no box")
        return item

    @app.workflow()
    async def body(flow: Flow) -> Any:
        return await flow.map(pack, ["a", "b", "c"], undo=undo, at_once=1)

    run = body.start()
    drain(app)
    assert ("dead", ["a", "b", "refund a"]) == (run.state, calls)
    run.supply("1.1.1", "B")
    drain(app)

    assert (["a", "B", "c"], ["a", "b", "refund a", "a", "c"]) == (run.result("2s"), calls)


@every_store
def test_a_value_for_a_branch_that_failed_in_a_thread(app: App, calls: Calls):
    """The branches of a body in a thread go on, too."""
    book, undo, fails = charge(calls), refund(calls), calls.step("fails", GiveUp("no carrier"))

    @app.workflow()
    def body(flow: SyncFlow) -> Any:
        return flow.gather(lambda: flow.step(book, 7, undo=undo), lambda: flow.step(fails))

    run = body.start()
    drain(app)
    run.supply("fails", 5)
    drain(app)

    assert (["charge 7", 5], "charge") == (run.result("2s"), calls[-1])


@every_store
def test_a_value_for_a_branch_of_a_race_leaves_its_winner(app: App, calls: Calls):
    """The branch that ended the race by its failure wins it; the others, which were dropped, take no step."""
    fails, late = calls.step("fails", GiveUp("no carrier")), calls.step("late")

    @app.workflow()
    async def body(flow: Flow) -> Any:
        async def waits() -> Any:
            await flow.sleep("1h")
            return await flow.step(late)

        return await flow.first(waits(), flow.step(fails))

    run = body.start()
    drain(app)
    run.supply("fails", 5)
    drain(app, within="2h")

    assert ([1, 5], ["fails"]) == (run.result("2s"), calls)


@every_store
@pytest.mark.parametrize("handled", [False, True])
def test_a_value_for_a_branch_that_failed_starts_another_child_beside_it(app: App, calls: Calls, *, handled: bool):
    """The child of the dropped branch was cancelled, whether the run has died of the failure or has gone on."""
    pack, fails = calls.step("pack"), calls.step("fails", GiveUp("no carrier"))

    @app.workflow()
    async def packing(flow: Flow) -> Any:
        await flow.sleep("1m")
        return await flow.step(pack, 3)

    @app.workflow()
    async def body(flow: Flow) -> Any:
        async def ship() -> Any:
            await flow.sleep("1s")
            return await flow.step(fails)

        got: Any = None
        try:
            got = await flow.gather(flow.call(packing), ship())
        except GiveUp:
            if not handled:
                raise
        return [got, await flow.wait_for("go", str)]

    run = body.start()
    drain(app, within="30s")
    (child,) = app.runs.select(workflow="packing")
    assert ("ready" if handled else "dead", "cancelled") == (run.state, app.runs.get("packing", child.id).state)
    run.supply("fails", 5)
    run.signal("go", "gone")
    drain(app, within="2h")

    assert ([[3, 5], "gone"], ["fails", "pack"]) == (run.result("2s"), calls)


@every_store
def test_a_value_for_a_branch_that_waits_keeps_what_another_one_has_decided(app: App, calls: Calls):
    """Only the branch that has failed first is given another end."""
    fails, later = calls.step("fails", GiveUp("no carrier")), calls.step("later", *[ConnectionError("down")] * 9)

    @app.workflow()
    async def body(flow: Flow) -> Any:
        async def ship() -> Any:
            await flow.sleep("1s")
            return await flow.step(fails)

        async def both() -> Any:
            return await flow.gather(flow.step(later, retry="5 1h"), ship())

        try:
            await flow.gather(both(), flow.sleep("1d"))
        except GiveUp:
            return await flow.wait_for("go", str)

    run = body.start()
    drain(app, within="30s")
    before = {row.path: row.result for row in run.timeline() if row.kind == "gather"}
    run.supply("later", 5)
    run.signal("go", "gone")
    drain(app, within="1h")

    assert {"1": b"0", "1.0.1": b"1"} == before
    assert ("gone", ["later", "fails"]) == (run.result("2s"), calls)


@every_store
def test_a_cancelled_run_starts_again_where_it_was_cancelled(app: App, calls: Calls):
    """Steps that answered the cancellation are forgotten, undone ones are executed anew, others are kept."""
    book, undo, keep, clean = charge(calls), refund(calls), calls.step("keep"), calls.step("clean")
    last = calls.step("last")

    @app.workflow()
    async def body(flow: Flow) -> str:
        await flow.step(keep)
        await flow.step(book, 7, undo=undo)
        try:
            await flow.wait_for("paid")
        except CancelRequested:
            await flow.step(clean)
            raise
        await flow.step(last)
        return "done"

    run = body.start()
    drain(app, within="1m")
    run.cancel("enough")
    drain(app, within="1m")
    assert "cancelled" == run.state
    run.job.retry()
    drain(app, within="1m")
    run.signal("paid")
    drain(app, within="1m")

    assert "done" == run.result("2s")
    assert ["keep", "charge", "clean", "refund charge 7", "charge", "last"] == calls


@every_store
def test_a_bulk_cancel_that_is_undone_starts_its_runs_again(app: App, calls: Calls):
    """Runs that an operation has cancelled, and that have ended since, execute anew what they took back."""
    book, undo = charge(calls), refund(calls)

    @app.workflow()
    async def body(flow: Flow) -> str:
        receipt = await flow.step(book, undo=undo)
        await flow.wait_for("paid")
        return receipt

    run = body.start()
    drain(app, within="1m")
    operation = app.operations.start(app.operations.preview("cancel", Filter(task="body")))
    app.operations.finish(operation.id)
    drain(app, within="1m")
    assert "cancelled" == run.state
    assert 1 == app.operations.finish(app.operations.undo(operation.id).id).done
    drain(app, within="1m")
    run.signal("paid")
    drain(app, within="1m")

    assert ("charge 0", ["charge", "refund charge 0", "charge"]) == (run.result("2s"), calls)


def test_a_step_whose_undo_failed_is_kept(app: App, calls: Calls):
    """It is still in effect; if the run fails again, its undo is tried again."""
    book, undo = charge(calls), calls.step("undo", OSError("closed"))
    fails = calls.step("fails", OSError("a"), OSError("b"))

    def undo_it(receipt: str) -> None:
        undo(0)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo_it)
        await flow.step(fails)

    run = body.start()
    drain(app)
    assert "a (charge not undone: closed)" == run.job.refresh().record.error
    run.job.retry()
    drain(app)

    assert "b (charge undone)" == run.job.refresh().record.error
    assert ["charge", "fails", "undo", "fails", "undo"] == calls


def test_a_kept_step_does_not_depend_on_the_results_of_steps_that_are_executed_anew(app: App, calls: Calls):
    """Finished steps without undo keep their results although they would get other arguments now."""
    numbers = iter((1, 2))
    keep, fails = calls.step("keep"), calls.step("fails", OSError("a"))

    def draw() -> int:
        return next(numbers)

    def drop(number: int) -> None:
        calls.append(f"drop {number}")

    @app.workflow()
    async def body(flow: Flow) -> list[int]:
        number = await flow.step(draw, undo=drop)
        kept = await flow.step(keep, number)
        await flow.step(fails)
        return [number, kept]

    run = body.start()
    drain(app)
    run.job.retry()
    drain(app)

    assert ([2, 1], ["keep", "fails", "drop 1", "fails"]) == (run.result("2s"), calls)


def test_a_retry_starts_another_child_in_place_of_the_one_that_failed(app: App, calls: Calls):
    """The parent takes its step back, and a retry executes it and calls a child anew."""
    book, undo, fails = charge(calls), refund(calls), calls.step("fails", OSError("a"))

    @app.workflow()
    async def child(flow: Flow) -> int:
        return await flow.step(fails, 3)

    @app.workflow()
    async def parent(flow: Flow) -> int:
        await flow.step(book, undo=undo)
        return await flow.call(child)

    run = parent.start(id="p")
    drain(app)
    assert ("dead", ["charge", "fails", "refund charge 0"]) == (run.state, calls)
    run.job.retry()
    drain(app)

    assert (3, ["charge", "fails", "refund charge 0", "charge", "fails"]) == (run.result("2s"), calls)


def test_a_run_that_undoes_is_neither_forked_nor_given_a_value(app: App, calls: Calls):
    """Steps that are about to be undone are not copied, and the refusal says what can be done."""
    book = charge(calls)
    undo = calls.step("undo", *(OSError("closed") for _ in range(9)))

    def undo_it(receipt: str) -> None:
        undo(0)

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo_it, retry="9 1h")
        await flow.step(calls.step("fails", GiveUp("no")))

    run = body.start()
    drain(app, within="30m")

    with pytest.raises(IllegalMove, match="takes its steps back at this moment: fork it when it has ended"):
        run.fork(from_step="fails")
    with pytest.raises(IllegalMove, match="takes its steps back at this moment: give the value when it has ended"):
        run.supply("fails", 1)
    assert run.fork().created


@every_store
def test_a_run_that_starts_again_fails_at_an_undone_step(app: App, calls: Calls):
    """What was kept behind it is not reached and does not hold the run; the next retry goes on with it."""
    errors: list[Exception] = []
    undo, keep, fails = refund(calls), calls.step("keep"), calls.step("fails", OSError("a"))

    def book() -> str:
        calls.append("book")
        if errors:
            raise errors.pop()
        return "1"

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        await flow.step(keep)
        await flow.sleep("1m")
        await flow.step(fails)

    run = body.start()
    drain(app)
    errors.append(GiveUp("no room"))
    run.job.retry()
    drain(app)
    assert ("dead", "no room") == (run.state, run.job.refresh().record.error)
    run.job.retry()
    drain(app)

    assert "succeeded" == run.state
    assert ["book", "keep", "fails", "refund 1", "book", "book", "fails"] == calls


@every_store
def test_a_run_that_is_cancelled_at_an_undone_step_keeps_what_lies_behind(app: App, calls: Calls):
    """Only steps that were taken after the cancellation are forgotten."""
    book, undo, keep, fails = charge(calls), refund(calls), calls.step("keep"), calls.step("fails", OSError("a"))

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo)
        await flow.step(keep)
        await flow.step(fails)

    run = body.start()
    drain(app)
    run.job.retry()
    run.cancel()
    drain(app)
    assert "cancelled" == run.state
    run.job.retry()
    drain(app)

    assert ("succeeded", 1, 2, 2) == (run.state, calls.count("keep"), calls.count("charge"), calls.count("fails"))


@every_store
def test_a_run_without_undos_forgets_what_it_did_about_its_failure(app: App, calls: Calls):
    """A retry repeats the step that ended the run, although its body has taken another step since."""
    fails, tell = calls.step("fails", OSError("a")), calls.step("tell")

    @app.workflow()
    async def body(flow: Flow) -> None:
        try:
            await flow.step(fails)
        except OSError:
            await flow.step(tell)
            raise

    run = body.start()
    drain(app)
    assert ("dead", "a") == (run.state, run.job.refresh().record.error)
    run.job.retry()
    drain(app)

    assert ("succeeded", ["fails", "tell", "fails"]) == (run.state, calls)


@every_store
def test_an_undone_step_of_a_branch_that_lost_is_not_executed_anew(app: App, calls: Calls):
    """What a lost branch had done was taken back, and the body does not need it any more."""
    book, undo, keep = charge(calls), refund(calls), calls.step("keep")
    fails = calls.step("fails", OSError("no carrier"))

    @app.workflow()
    async def body(flow: Flow) -> int:
        async def loses() -> None:
            await flow.step(book, undo=undo)
            await flow.step(keep)
            await flow.sleep("10d")

        async def wins() -> str:
            await flow.sleep("1m")
            return await flow.step(book, 7, undo=undo)

        winner, _ = await flow.first(loses(), wins())
        await flow.step(fails)
        return winner

    run = body.start()
    drain(app, within="1h")
    assert ["charge", "keep", "charge", "fails", "refund charge 7", "refund charge 0"] == calls
    run.job.retry()
    drain(app, within="1h")

    assert (1, ["charge", "fails"]) == (run.result("2s"), calls[6:])


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_a_step_in_the_transaction_of_the_database_is_kept(app: App, calls: Calls):
    """It has no undo, so that its writes stay and are not repeated, although the step before it is executed anew."""
    book, undo, fails = charge(calls), refund(calls), calls.step("fails", OSError("no carrier"))

    def write(connection: Any) -> str:
        calls.append("write")
        return "row"

    @app.workflow()
    def body(flow: SyncFlow) -> str:
        flow.step(book, undo=undo)
        row = flow.transaction(write)
        flow.step(fails)
        return row

    run = body.start()
    drain(app)
    run.job.retry()
    drain(app)

    assert "row" == run.result("2s")
    assert ["charge", "write", "fails", "refund charge 0", "charge", "fails"] == calls


@every_store
def test_a_step_with_tries_is_executed_anew_with_all_of_them(app: App, calls: Calls):
    """The tries of a step that was undone are counted from the beginning."""
    left: list[Exception] = [OSError("a"), OSError("b")]
    undo, fails = calls.step("undo"), calls.step("fails", GiveUp("no"))

    def book() -> int:
        calls.append("book")
        if left:
            raise left.pop(0)
        return 0

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(book, undo=undo, retry="2 1s")
        await flow.step(fails)

    run = body.start()
    drain(app)
    left.extend([OSError("c"), OSError("d")])
    run.job.retry()
    drain(app)

    assert "succeeded" == run.state
    assert (6, 1, 2) == tuple(calls.count(each) for each in ("book", "undo", "fails"))


# ------------------------------------------------------------------------------------------------------- values


@every_store
def test_the_last_values_of_a_run_are_stored_with_its_end(app: App, calls: Calls):
    """Values that are set after the last step are stored, however the run ends."""
    one = calls.step("one")

    @app.workflow()
    async def succeeds(flow: Flow) -> None:
        flow.set("status", "working")
        await flow.step(one)
        flow.set("status", "last")

    @app.workflow()
    def in_a_thread(flow: SyncFlow) -> None:
        flow.step(one)
        flow.set("status", "last")

    @app.workflow()
    async def fails(flow: Flow) -> None:
        await flow.step(one)
        flow.set("status", "last")
        raise GiveUp("no")

    @app.workflow()
    async def undoes(flow: Flow) -> None:
        await flow.step(one, undo=_echo)
        flow.set("status", "last")
        raise GiveUp("no")

    @app.workflow(retry="9 1d")
    async def retries(flow: Flow) -> None:
        flow.set("status", "last")
        raise OSError("for now")

    @app.workflow()
    async def cancelled(flow: Flow) -> None:
        flow.set("status", "working")
        try:
            await flow.sleep("10d")
        except CancelRequested:
            flow.set("status", "last")
            raise

    runs = [each.start() for each in (succeeds, in_a_thread, fails, undoes, retries, cancelled)]
    drain(app, within="1m")
    runs[-1].cancel()
    drain(app, within="1m")

    assert ["succeeded", "succeeded", "dead", "dead", "ready", "cancelled"] == [run.state for run in runs]
    assert ["last"] * 6 == [run.value("status") for run in runs]


def _places(app: App, error: type[BaseException]) -> list[Workflow[[], Any, Any]]:  # noqa: C901 - one for each place
    """Return workflows whose body, steps, transactions, branches and undos raise an error, in each colour."""

    def plain() -> None:
        raise error

    def undone(_: None) -> None:
        plain()

    async def coloured() -> None:
        raise error

    async def undone_async(_: None) -> None:
        await coloured()

    def write(_: object) -> None:
        plain()

    def ok() -> None:
        """Do nothing."""

    def give_up() -> None:
        raise GiveUp("the end")

    @app.workflow()
    async def step(flow: Flow) -> None:
        await flow.step(plain)

    @app.workflow()
    async def step_async(flow: Flow) -> None:
        await flow.step(coloured)

    @app.workflow()
    async def transaction(flow: Flow) -> None:
        await flow.transaction(write)

    @app.workflow()
    async def undo(flow: Flow) -> None:
        await flow.step(ok, undo=undone)
        await flow.step(give_up)

    @app.workflow()
    async def undo_async(flow: Flow) -> None:
        await flow.step(ok, undo=undone_async)
        await flow.step(give_up)

    @app.workflow()
    async def branch(flow: Flow) -> None:
        await flow.gather(flow.step(ok), coloured())

    @app.workflow()
    async def body(flow: Flow) -> None:
        await flow.step(ok)
        raise error

    @app.workflow()
    def sync_step(flow: SyncFlow) -> None:
        flow.step(plain)

    @app.workflow()
    def sync_branch(flow: SyncFlow) -> None:
        flow.gather(functools.partial(flow.step, ok), plain)

    @app.workflow()
    def sync_body(flow: SyncFlow) -> None:
        flow.step(ok)
        plain()

    return [
        step, step_async, transaction, undo, undo_async, branch, body, sync_step, sync_branch, sync_body
    ]  # fmt: skip


@pytest.mark.parametrize("error", _ODD)
@pytest.mark.parametrize("drained", [True, False])
def test_each_exception_of_a_run_ends_it(tmp_path: Path, error: type[BaseException], *, drained: bool):
    """No exception class leaves a run running, wherever its code raises it, or ends the worker."""
    app = app_on(tmp_path, lease_for="1m", heartbeat_every="10s", clock=VirtualClock() if drained else None)
    jobs = {workflow.name: workflow.start().job for workflow in _places(app, error)}

    async def work() -> None:
        async with working(app):
            await ended(*jobs.values())

    if drained:
        drain(app, within="1m")
    else:
        asyncio.run(work())
    states = {name: job.refresh().state for name, job in jobs.items()}
    app.close()

    assert dict.fromkeys(jobs, State.DEAD) == states
