"""A background duty that fails is started again, visibly; a worker that does end of an error has crashed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from redrive import App, observe
from redrive.errors import StoreBusy
from redrive.runtime.dead_workers import Rescuer
from redrive.runtime.supervision import MEMORY_LIMIT, Duty, Supervisor
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock
from tests.runtime.helpers import PATIENCE, ended, until, working


class InterruptingError(Exception):
    """An exception that cannot be described."""

    def __getattr__(self, name: str) -> object:
        """Raise what no caller expects."""
        raise ZeroDivisionError(name)

    def __str__(self) -> str:
        """Raise too."""
        raise KeyboardInterrupt


def supervised(*outcomes: BaseException | None) -> tuple[VirtualClock, list[str | None]]:
    """Repeat a duty with steps that end so; return the rests, and the troubles that were shown."""
    clock, seen = VirtualClock(), []
    supervisor = Supervisor(clock, changed=seen.append)
    left = list(outcomes)

    async def step() -> float | None:
        """End as the test prescribes."""
        if not left:
            return None
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome
        return 0.0

    asyncio.run(supervisor.run(Duty("sweeping", step)))
    return clock, seen


def test_a_failing_duty_is_restarted_with_growing_delays():
    """Rests grow from a tenth of a second; after a success they begin anew."""
    clock, _ = supervised(ValueError("a"), ValueError("b"), ValueError("c"), None, ValueError("d"))

    assert pytest.approx(0.1 + 0.2 + 0.4 + 0.1) == clock.monotonic()


def test_a_defect_is_logged_with_its_traceback_once(caplog: pytest.LogCaptureFixture):
    """Repeated errors are one line each; their end is logged too."""
    with caplog.at_level(logging.INFO, "redrive.worker"):
        supervised(ValueError("odd row"), ValueError("odd row"), None)
    first, second, end = caplog.messages

    assert first.startswith(
        "sweeping failed, and is started again: ValueError: odd row\n    Traceback (most recent call"
    )
    assert ("sweeping failed again, 2 times in a row: ValueError: odd row", "sweeping works again") == (second, end)


def test_an_unreachable_database_is_no_defect(caplog: pytest.LogCaptureFixture):
    """Log one line, and show no trouble of the worker."""
    _, seen = supervised(StoreBusy("locked"), StoreBusy("locked"), None)

    assert ([], ["sweeping waits: locked"]) == (seen, caplog.messages)


def test_errors_of_a_duty_are_reported_at_start_change_and_end():
    """Three failures of two kinds, and a success."""
    _, seen = supervised(ValueError("a"), ValueError("a"), KeyError("b"), None)

    assert ["sweeping: ValueError: a", "sweeping: KeyError: 'b'", None] == seen


def test_an_exception_that_cannot_be_described_does_not_end_a_duty(caplog: pytest.LogCaptureFixture):
    """Log the class and the place of the exception."""
    supervised(InterruptingError(), None)

    assert "sweeping failed, and is started again: InterruptingError: <no message: KeyboardInterrupt" in caplog.text
    assert "in step\n        raise outcome" in caplog.text


def test_a_duty_for_which_there_is_no_memory_ends_the_worker():
    """End the worker after repeated MemoryErrors, since only a new process frees memory; a few are survived."""
    supervised(*[MemoryError()] * MEMORY_LIMIT, None, *[MemoryError()] * MEMORY_LIMIT)
    with pytest.raises(MemoryError):
        supervised(*[MemoryError()] * (MEMORY_LIMIT + 1))


def test_a_failing_duty_is_seen_from_outside_until_it_works_again(filed: App, monkeypatch: pytest.MonkeyPatch):
    """If a duty fails, the worker continues; its row, the reason of a due job, and an event name the trouble."""
    broken, look, events = [True], Rescuer.look, []

    async def flaky(self: Rescuer) -> float:
        """Fail until the test ends the trouble."""
        if broken:
            raise ArithmeticError("odd row")
        await look(self)
        return 0.01

    monkeypatch.setattr(Rescuer, "look", flaky)
    task = filed.task(name="send")(lambda: None)

    async def run() -> str:
        """Read the row of the worker while the duty fails, and afterwards."""
        with observe.only(events.append):
            async with working(filed):
                await until(lambda: any(worker.trouble for worker in filed.workers.select()))
                await ended(await task.aenqueue())
                seen = filed.workers.select()[0].trouble
                broken.clear()
                await until(lambda: filed.workers.select()[0].trouble is None)
        return seen

    assert "sweeping: ArithmeticError: odd row" == asyncio.run(run())
    failed = [each for each in events if isinstance(each, observe.WorkerDutyFailed)]
    assert ("sweeping", "ArithmeticError: odd row", 1) == (failed[0].duty, failed[0].error, failed[0].failures)


def exits() -> None:
    """Raise what ends an event loop."""
    raise SystemExit(3)


async def by_callback() -> None:
    """End the event loop by a callback, and wait for that."""
    asyncio.get_running_loop().call_soon(exits)
    await asyncio.Event().wait()


def test_attempts_of_a_failed_worker_count_as_crashed(filed: App):
    """After its handler has ended three workers a job is dead, and the job beside it has not failed."""
    ran: list[int] = []

    async def waits() -> None:
        """Run for ever, in the first attempt."""
        ran.append(1)
        if len(ran) == 1:
            await asyncio.Event().wait()

    killer = filed.task(name="kill")(by_callback).enqueue()
    other = filed.task(name="beside")(waits).enqueue()
    for _ in range(3):
        with pytest.raises(SystemExit):
            asyncio.run(asyncio.wait_for(Worker(filed).run(), PATIENCE))

    assert ["lost"] * 3 == [each.outcome for each in killer.attempts]
    assert ("dead", "POISON") == (killer.refresh().state, killer.record.reason)
    assert ["lost", "succeeded"] == [each.outcome for each in other.attempts]


def test_a_handler_whose_own_task_ends_the_worker_has_failed(filed: App):
    """If the exception reaches the handler, the attempt has an outcome, and the worker is not ended repeatedly."""

    async def by_task() -> None:
        """End the event loop by a task, and wait for that."""
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            await asyncio.Event().wait()

    async def child() -> None:
        """Raise what ends the event loop."""
        exits()

    killer = filed.task(name="kill")(by_task).enqueue()
    with pytest.raises(SystemExit):
        asyncio.run(asyncio.wait_for(Worker(filed).run(), PATIENCE))

    assert ["failed"] == [each.outcome for each in killer.attempts]
    assert "dead" == killer.refresh().state
