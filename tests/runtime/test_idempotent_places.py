"""An attempt in flight is repeated in every durable place, unless the function is declared ``idempotent=False``."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

import redrive
from redrive import App, Policy
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock, drain

TWICE = "1 1s 1s"


@dataclass(frozen=True)
class Paid:
    """An event."""

    number: str = "inv-7"


class Bank:
    """A bank whose answers are lost."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def charge(self):
        """Charge, and lose the answer."""
        self.calls += 1
        raise self.error


def of_task(app, bank, word):
    """Enqueue a job."""

    @app.task(retry=TWICE, idempotent=word)
    def charge() -> None:
        bank.charge()

    charge.enqueue()


def of_async_task(app, bank, word):
    """Enqueue a job of a coroutine function."""

    @app.task(retry=TWICE, idempotent=word)
    async def charge() -> None:
        bank.charge()

    charge.enqueue()


def of_policy(app, bank, word):
    """Enqueue a job with the declaration in its policy."""

    @app.task(retry=redrive.Policy.parse(TWICE).with_(idempotent=word))
    def charge() -> None:
        bank.charge()

    charge.enqueue()


def of_cron(app, bank, word):
    """Run by the clock, once within the time of the test."""

    @app.cron("0 3 * * *", tz="UTC", retry=TWICE, idempotent=word)
    def charge() -> None:
        bank.charge()


def of_machine(app, bank, word):
    """Enter the first state of a machine."""
    payment = app.machine("payment", retry=TWICE)

    @payment.start(idempotent=word)
    def created(event: Paid) -> None:
        bank.charge()

    payment.send("inv-7", Paid())


def of_transition(app, bank, word):
    """Enter a later state of a machine."""
    payment = app.machine("payment", retry=TWICE, idempotent=word)

    @payment.start(idempotent=True)
    def created(event: Paid) -> None:
        """Do nothing."""

    @payment.state(after=[created])
    def charged(event: Paid) -> None:
        bank.charge()

    payment.send("inv-7", Paid())
    drain(app)
    payment.send("inv-7", Paid())


def of_subscription(app, bank, word):
    """Deliver an event."""
    topic = app.topic("payments", Paid)

    @topic.subscribe("bank", retry=TWICE, idempotent=word)
    def charge(event: Paid) -> None:
        bank.charge()

    topic.publish(Paid())


def of_step(app, bank, word):
    """Call a step of a run with its own policy."""

    def charge() -> None:
        bank.charge()

    @app.workflow()
    async def checkout(flow: redrive.Flow) -> None:
        await flow.step(charge, retry=redrive.Policy.parse(TWICE).with_(idempotent=word))

    checkout.start(id="order-7")


def of_task_as_step(app, bank, word):
    """Call a task as a step, whose declaration counts beside the policy of the step."""

    @app.task(idempotent=word)
    def charge() -> None:
        bank.charge()

    @app.workflow()
    async def checkout(flow: redrive.Flow) -> None:
        await flow.step(charge, retry=TWICE)

    checkout.start(id="order-7")


def of_body(app, bank, word):
    """Fail in the body of a run."""

    @app.workflow(retry=redrive.Policy.parse(TWICE).with_(idempotent=word))
    async def checkout(flow: redrive.Flow) -> None:
        bank.charge()

    checkout.start(id="order-7")


PLACES = [
    of_task,
    of_async_task,
    of_policy,
    of_cron,
    of_machine,
    of_transition,
    of_subscription,
    of_step,
    of_task_as_step,
    of_body,
]


@pytest.mark.parametrize("word", [None, False, True])
@pytest.mark.parametrize("error", [TimeoutError, ConnectionRefusedError, OSError])
@pytest.mark.parametrize("place", PLACES)
def test_a_place_repeats_what_was_in_flight_unless_that_is_forbidden(place, error, word):
    """Two attempts by the policy; one if the outcome is unknown and the function may run once."""
    app, bank = App("memory://", clock=VirtualClock()), Bank(error)
    place(app, bank, word)
    drain(app, within="25h" if place is of_cron else None)

    assert (1 if word is False and error is TimeoutError else 2) == bank.calls


def late_task(app, work, word):
    """Enqueue a job with a time limit."""
    app.task(name="charge", retry=TWICE, idempotent=word, timeout="1ms")(work).enqueue()


def late_soft_task(app, work, word):
    """Enqueue a job with a soft timeout."""
    app.task(name="charge", retry=TWICE, idempotent=word, timeout="1h", soft_timeout="1ms")(work).enqueue()


def late_step(app, work, word):
    """Call a step with a time limit."""

    @app.workflow()
    async def checkout(flow: redrive.Flow) -> None:
        await flow.step(work, retry=redrive.Policy.parse(TWICE).with_(idempotent=word), timeout="1ms")

    checkout.start(id="order-7")


def late_body(app, work, word):
    """Run a body with a time limit."""

    @app.workflow(retry=redrive.Policy.parse(TWICE).with_(idempotent=word, attempt_timeout="1ms"))
    async def checkout(flow: redrive.Flow) -> None:
        await work()

    checkout.start(id="order-7")


@pytest.mark.parametrize("word", [None, False, True])
@pytest.mark.parametrize("place", [late_task, late_soft_task, late_step, late_body])
def test_an_error_that_replaces_a_timeout_is_in_flight(place, word):
    """An attempt that its time limit has interrupted is repeated as its timeout is, whatever its cleanup raises."""
    app, begun = App("memory://", clock=VirtualClock()), []

    async def work() -> None:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("cleanup")

    place(app, work, word)
    drain(app)

    assert (1 if word is False else 2) == len(begun)


@pytest.mark.parametrize(("word", "calls"), [(None, 2), (False, 1)])
def test_a_timeout_of_a_step_has_the_word_of_its_task(word, calls):
    """The time limit of a step cuts a task off that it calls; what the task declares holds for that, too."""
    app, begun = App("memory://"), []

    @app.task(idempotent=word)
    async def charge() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    async def pay() -> None:
        await charge()

    @app.workflow()
    async def checkout(flow: redrive.Flow) -> None:
        await flow.step(pay, retry="1 10ms 10ms", timeout="20ms")

    run = checkout.start(id="order-7")
    with pytest.raises(Exception, match=r"longer than 0\.02 s"):
        _serve(app, run)

    assert calls == len(begun)


@pytest.mark.parametrize(("word", "calls"), [(None, 2), (False, 1)])
@pytest.mark.parametrize("place", ["step", "undo"])
def test_a_timeout_of_a_step_in_a_thread_has_the_word_of_its_task(place, word, calls):
    """The function has not raised then, so the word counts by the policy: that of the workflow, also for an undo."""
    app, begun, over = App("memory://"), [], threading.Event()

    @app.task(idempotent=word)
    def refund(receipt: str = "none") -> None:
        begun.append(receipt)
        over.wait(60)

    def charge() -> str:
        return "receipt"

    @app.workflow(steps=Policy.parse("1 10ms 10ms").with_(attempt_timeout="300ms"))
    async def checkout(flow: redrive.Flow) -> None:
        if place == "step":
            await flow.step(refund)
        await flow.step(charge, undo=refund)
        raise redrive.GiveUp("full")

    run = checkout.start(id="order-7")
    with pytest.raises(Exception, match=r"longer than 0\.3 s"):
        _serve(app, run)
    over.set()

    assert calls == len(begun)


def _serve(app, run):
    """Run a worker until a run has ended, and return its result."""

    async def main():
        async with asyncio.timeout(60):
            worker = asyncio.create_task(Worker(app).run())
            try:
                return await run.aresult()
            finally:
                worker.cancel()
                await asyncio.wait([worker])

    return asyncio.run(main())
