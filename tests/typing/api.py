"""Type tests: typical uses of the public API, with the types that they promise. mypy reads this file; nothing runs it.

A line that ends in an ignore is a promise too: mypy warns about an ignore that nothing needs, so the mistake on it must
stay a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import assert_type

import redrive
import redrive.errors
from redrive import observe
from redrive.policy import Backoff, Decision, Defer, Failure, GiveUp, History, Jitter, Policy, Retry, Rule


@dataclass(frozen=True)
class PaymentRequest:
    """What a task takes."""

    cents: int


@dataclass(frozen=True)
class JobReceipt:
    """What a task returns."""

    number: str


# --- names ------------------------------------------------------------------------------------------------------------

assert_type(redrive.errors.JobDead(), redrive.errors.JobDead)
redrive.Jobs()  # type: ignore[attr-defined]
redrive.errors.JobDed()  # type: ignore[attr-defined]
observe.JobDed()  # type: ignore[attr-defined]


# --- policies ---------------------------------------------------------------------------------------------------------

policy = Policy.parse("10 5s 1m catch recover")
assert_type(policy, Policy)
assert_type(policy.attempts, int | None)
assert_type(policy.deadline, timedelta | None)
assert_type(policy.jitter, Jitter)
assert_type(policy.rules, tuple[Rule, ...])
assert_type(policy.catch, str | None)
if policy.deadline is not None:
    assert_type(policy.deadline, timedelta)
assert_type(policy.delays(3), list[float])
assert_type(policy.directive(), str)
assert_type(Policy.from_dict(policy.to_dict()), Policy)
assert_type(redrive.Policy.parse("5s"), Policy)

Policy(
    on=(ConnectionError, "TIMEOUT"),
    attempts=None,
    deadline=30,
    backoff=Backoff.exponential("200ms", timedelta(seconds=5)),
    jitter="full",
    rules=[Rule(on=TimeoutError, attempts=2)],
)
Policy(jitter=Jitter.plus(0.1))
Policy(backoff=lambda retry: 0.5 * retry)
Policy(backoff=lambda retry: timedelta(seconds=retry))
Policy(backoff=lambda: 1.0)  # type: ignore[arg-type, misc]
assert_type(Policy(backoff=Backoff.calling(float)).backoff, Backoff)
assert_type(Jitter.full, Jitter)
Policy(3)  # type: ignore[arg-type, call-arg]
Policy(attempts="3")  # type: ignore[arg-type]
Policy(deadline=[])  # type: ignore[arg-type]
Policy(atempts=3)  # type: ignore[call-arg]
policy.attempts = 3  # type: ignore[misc]
policy.deadline = timedelta(seconds=3)  # type: ignore[misc]

failure = Failure.of(ConnectionError("no route"))
history = History(attempts=1, started_at=datetime(2026, 1, 1, tzinfo=UTC))
decision = policy.decide(history, failure, datetime(2026, 1, 2, tzinfo=UTC), 0.5)
assert_type(decision, Decision)


def described(decision: Decision) -> timedelta | datetime | str:
    """Match a decision exhaustively over these three classes."""
    match decision:
        case Retry():
            return decision.delay
        case Defer():
            return decision.at
        case GiveUp():
            return decision.why


# --- calls in this process --------------------------------------------------------------------------------------------


@redrive.retry("5 100ms 2s", on=ConnectionError)
def fetch(key: int, *, fresh: bool = False) -> str:
    """Keep parameters and result."""
    return f"{key}{fresh}"


@redrive.retry(policy, on=(ConnectionError, "TIMEOUT"), attempts=3, deadline="10s")
async def afetch(key: int) -> str:
    """Stay a coroutine function."""
    return str(key)


@redrive.retry("3 1s", on=ConnectionError, generator="restart")
def lines(path: str) -> Iterator[str]:
    """Stay a generator function."""
    yield path


class Fetcher:
    """Methods keep their self."""

    @redrive.retry("3 1s", on=ConnectionError)
    def get(self, key: int) -> bytes:
        """Keep parameters and result."""
        return bytes(key)


assert_type(fetch(1, fresh=True), str)
assert_type(lines("a"), Iterator[str])
assert_type(Fetcher().get(1), bytes)
fetch("1")  # type: ignore[arg-type]
redrive.retry("3 1s", on=ConnectionError, atempts=3)  # type: ignore[call-arg]

assert_type(policy.call(fetch, 1, fresh=True), str)
assert_type(policy.outcome(fetch, 1), redrive.Ok[str] | redrive.GaveUp | redrive.Deferred)
policy.call(fetch, "1")  # type: ignore[arg-type]


async def calls() -> None:
    """Call the asynchronous forms, which have the same result types."""
    assert_type(await afetch(1), str)
    assert_type(await policy.acall(afetch, 1), str)
    async for attempt in policy:
        with attempt:
            assert_type(attempt.number, int)


with redrive.disabled():
    bound = redrive.deadline()
    assert_type(bound.remaining if bound else None, float | None)


# --- durable tasks ----------------------------------------------------------------------------------------------------

app = redrive.App("memory://")


@app.task(retry="5 1s catch recover", queue="payments", timeout="30s")
def charge(payment: PaymentRequest, *, note: str = "") -> JobReceipt:
    """Enqueue as it would be called."""
    return JobReceipt(f"{payment.cents}{note}")


@app.task
def recover(request: redrive.CatchRequest[PaymentRequest]) -> None:
    """Know the type of the request that failed."""
    assert_type(request.request, PaymentRequest)


@app.task
async def charge_slowly(payment: PaymentRequest) -> JobReceipt:
    """Its jobs promise what it returns, not the coroutine."""
    return charge(payment)


@app.task
async def ask(payment: PaymentRequest) -> JobReceipt | redrive.Pending:
    """Suspend the attempt, which returns no result."""
    return redrive.Pending("1h")


@app.task(queue="slow")
def ask_slowly(payment: PaymentRequest) -> JobReceipt | redrive.Pending:
    """Suspend the attempt with options."""
    return redrive.Pending("1h")


@app.task(soft_timeout="10s", timeout="30s", idempotent=True)
def book(payment: PaymentRequest, ctx: redrive.Context) -> JobReceipt:
    """Commit with the completion."""
    with ctx.transaction() as connection:
        connection.execute("INSERT INTO orders VALUES (1)")
        ctx.set_result(JobReceipt("1"))
    assert_type(ctx.should_stop, bool)
    assert_type(ctx.stop_reason, redrive.Stop | None)
    return JobReceipt("1")


@app.task
def settle(ctx: redrive.Context, payment: PaymentRequest, *, note: str = "") -> JobReceipt:
    """Take the context in front, where type checkers can remove it from the parameters of jobs."""
    return JobReceipt(f"{ctx.job_id}{payment.cents}{note}")


@app.task(retry="3 1s", queue="slow")
async def settle_slowly(ctx: redrive.Context, payment: PaymentRequest) -> JobReceipt | redrive.Pending:
    """Take the context in front, with options."""
    return settle(ctx, payment)


@app.task(queue="slow")
async def settle_last(payment: PaymentRequest, *, context: redrive.Context) -> JobReceipt:
    """Take the context by keyword."""
    return settle(context, payment)


@app.task
def sweep(ctx: redrive.Context) -> None:
    """Take nothing but the context."""


@app.task
def note_down(value: object, count: int = 1) -> str:
    """Take any object first, which is not the context."""
    return f"{value}{count}"


def settling(context: redrive.Context) -> None:
    """Call tasks with a context: a call has it, a job does not."""
    assert_type(settle.enqueue(PaymentRequest(1), note="thanks"), redrive.Job[JobReceipt])
    assert_type(settle.enqueue(payment=PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(settle.options(delay="5m").enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(settle.debounce("x", quiet="1s", at_most="1m").enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(settle.enqueue_many([PaymentRequest(1)]), list[redrive.Job[JobReceipt]])
    assert_type(settle.call(context, PaymentRequest(1), policy=policy), JobReceipt)
    assert_type(settle(context, PaymentRequest(1)), JobReceipt)
    settle.enqueue(context, PaymentRequest(1))  # type: ignore[call-overload]
    settle.enqueue("a payment")  # type: ignore[call-overload]
    settle.options(delay="5m").enqueue("a payment")  # type: ignore[call-overload]
    settle(PaymentRequest(1))  # type: ignore[call-arg, arg-type]
    assert_type(book.enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(book.options(priority=1).enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(book(PaymentRequest(1), context), JobReceipt)
    assert_type(settle_last.enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(sweep.enqueue(), redrive.Job[None])
    assert_type(note_down.enqueue({"a": 1}, count=2), redrive.Job[str])
    sweep.enqueue(1)  # type: ignore[call-overload]
    plain: redrive.Task[[PaymentRequest], JobReceipt, JobReceipt] = app.task(lambda payment: JobReceipt(str(payment)))
    assert_type(plain.enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])


async def settling_slowly(context: redrive.Context) -> None:
    """Call the asynchronous forms, which have the same result types."""
    assert_type(await settle_slowly.aenqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(await settle_slowly.options(key="a").aenqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
    assert_type(await settle_slowly.aenqueue_many([PaymentRequest(1)]), list[redrive.Job[JobReceipt]])
    assert_type(await settle_slowly.acall(context, PaymentRequest(1), policy=policy), JobReceipt)
    assert_type(await settle_slowly(context, PaymentRequest(1)), JobReceipt)
    await settle_slowly.aenqueue("a payment")  # type: ignore[call-overload]


assert_type(ask.enqueue(PaymentRequest(1)).result(), JobReceipt)
assert_type(ask_slowly.enqueue(PaymentRequest(1)).result(), JobReceipt)
assert_type(app.complete("3.7", JobReceipt("1")), bool)
assert_type(app.fail("3.7", ValueError("declined")), bool)
assert_type(book.call(PaymentRequest(1), policy=policy), JobReceipt)
assert_type(charge_slowly.enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
assert_type(charge(PaymentRequest(1)), JobReceipt)

job = charge.enqueue(PaymentRequest(1), note="thanks")
assert_type(job, redrive.Job[JobReceipt])
assert_type(job.result(timeout="10s"), JobReceipt)
assert_type(charge.options(delay="5m", priority=3).enqueue(PaymentRequest(1)), redrive.Job[JobReceipt])
assert_type(charge.enqueue_many([PaymentRequest(1)]), list[redrive.Job[JobReceipt]])
charge.enqueue(PaymentRequest(1), using=object())
charge.enqueue("a payment")  # type: ignore[call-overload]


async def durable() -> None:
    """Call the asynchronous forms, which have the same result types."""
    job = await charge.aenqueue(PaymentRequest(1))
    assert_type(job, redrive.Job[JobReceipt])
    assert_type(await job.aresult(), JobReceipt)
    await charge.aenqueue("a payment")  # type: ignore[call-overload]
    assert_type(await charge_slowly.acall(PaymentRequest(1), policy=policy), JobReceipt)
    assert_type(await app.acomplete("3.7"), bool)


# --- crons ------------------------------------------------------------------------------------------------------------


@app.cron(
    "*/5 * * * *",
    tz="Europe/Kyiv",
    retry="3 1s",
    overlap="queue",
    catch_up="none",
    window=timedelta(hours=1),
    jitter="2m",
)
def nightly(ctx: redrive.Context) -> None:
    """Know the occurrence."""
    assert_type(ctx.occurs_at, datetime | None)


@app.cron("@daily")
async def nightly_slowly() -> None:
    """Jobs promise nothing, not the coroutine."""


assert_type(nightly_slowly.enqueue(), redrive.Job[None])
assert_type(nightly.enqueue(), redrive.Job[None])
assert_type(nightly.trigger().occurs_at, datetime)
assert_type(nightly.state.next_at, datetime | None)
assert_type([each.job_id for each in nightly.backfill(history.started_at, history.started_at)], list[int | None])
assert_type(nightly.pause(actor="ann").paused_at, datetime | None)
assert_type([each.name for each in app.schedules.select()], list[str])
app.cron("@daily", overlap="maybe")  # type: ignore[arg-type]
app.cron(nightly)  # type: ignore[arg-type]
app.cron("@daily")(charge)  # type: ignore[arg-type]


async def crons() -> None:
    """Call the asynchronous forms, which have the same result types."""
    await nightly_slowly()
    assert_type([each.note for each in await nightly.aoccurrences(limit=1)], list[str | None])
    assert_type((await nightly.aresume()).paused_at, datetime | None)


# --- state machines ---------------------------------------------------------------------------------------------------


@dataclass
class PaymentBegun:
    """An event."""


machine = redrive.App("memory://").machine("payment", retry="10 1s", busy="queue")
assert_type(machine, redrive.Machine)
begun = machine.start(lambda event: None)


@machine.state(after=[begun], timeout=("3 days", PaymentBegun()), within=timedelta(hours=2), when=lambda event: True)
def payment_paid(event: PaymentBegun, ctx: redrive.Context) -> None:
    """Send the next event."""
    ctx.next(PaymentBegun())


assert_type(machine.get("invoice-42"), redrive.MachineInstance)
assert_type(machine.get("invoice-42").state, str | None)
assert_type(machine.get("invoice-42").events(), tuple[type, ...])
machine.send("invoice-42", PaymentBegun(), key="webhook-981")
machine.send("invoice-42", PaymentBegun(), busy="later")  # type: ignore[arg-type]
machine.state(after=[7])  # type: ignore[list-item]


# --------------------------------------------------------------------------------------------------------- workflows


def charge_order(order: int, cents: int = 0) -> str:
    """Charge."""
    return f"{order}"


async def ship_order(order: int) -> float:
    """Ship."""
    return 1.0


def refund_order(charge: str) -> None:
    """Refund."""


@app.workflow(version=2, steps="5 1s", deadline="30d")
async def sell(flow: redrive.Flow, order: int) -> str:
    """Sell an order."""
    charge = await flow.step(charge_order, order, cents=3)
    assert_type(charge, str)
    assert_type(await flow.step(ship_order, order, retry="5 1s", timeout="1m"), float)
    assert_type(await flow.step(charge_order, order, undo=refund_order), str)
    assert_type(await flow.wait_for("shipped", int, timeout="7d"), int)
    assert_type(await flow.gather(flow.step(ship_order, 1), flow.step(ship_order, 2)), list[float])
    assert_type(await flow.map(charge_order, [1, 2]), list[str])
    assert_type(await flow.first(flow.step(ship_order, 1)), tuple[int, float])
    assert_type(await flow.call(pack, order), int)
    flow.step(charge_order, "x")  # type: ignore[call-overload]
    named = flow.named("charge", inputs=[order])
    assert_type(await named.step(charge_order, order, cents=3), str)
    assert_type(await named.step(ship_order, order, retry="5 1s", timeout="1m"), float)
    assert_type(await named.step(charge_order, order, undo=refund_order), str)
    assert_type(await named.step(lambda: 3), int)
    assert_type(await named.sleep("1m"), None)
    assert_type(await named.wait_for("shipped", int, timeout="7d"), int)
    assert_type(await named.wait_for_event("ready", int), int)
    assert_type(await named.call(pack, order), int)
    assert_type(redrive.current_flow(), redrive.Flow | None)
    named.gather()  # type: ignore[attr-defined]
    flow.named(3)  # type: ignore[arg-type]
    return charge


@app.workflow()
def pack(flow: redrive.SyncFlow, order: int) -> int:
    """Pack an order."""
    assert_type(flow.step(charge_order, order), str)
    assert_type(flow.gather(lambda: flow.step(ship_order, 1)), list[float])
    flow.sleep("1d")
    return 1


sale = sell.start(7)
assert_type(sale, redrive.Run[str])
assert_type(sale.result(), str)
assert_type(sell.start(7, id="order-7"), redrive.Run[str])
assert_type(sale.value("state", str), str | None)
sell.start("x")  # type: ignore[call-overload]


# --- batches ----------------------------------------------------------------------------------------------------------


def a_batch(payment: PaymentRequest) -> None:
    """Check the arguments of each job, and know the result of the one that follows."""
    batch = app.batch()
    batch.add(charge, payment)
    batch.add(charge, "x")  # type: ignore[arg-type]
    batch.add_many(charge, [payment])
    assert_type(batch.enqueue(charge, payment), redrive.Job[JobReceipt])
