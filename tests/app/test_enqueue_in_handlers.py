"""Jobs that a handler enqueues are written with the successful end of its attempt, as its publishes are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App, CatchRequest, Context, Filter, Pending, Policy, Snooze
from redrive.app.attempts.effects import Effects, joined
from redrive.engine.lifecycle import State
from redrive.errors import DuplicateJob, JobNotFound, LeaseLost
from redrive.testing import VirtualClock, drain
from tests import postgres

every_store = pytest.mark.parametrize("app", ["memory", "sqlite", "turso", "postgres"], indirect=True)
lending = pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """Yield an app with a virtual clock, in memory unless the test asks for another store."""
    kind = getattr(request, "param", "memory")
    files = {
        "memory": "memory://",
        **{each: f"{each}:///{tmp_path}/jobs.db?synchronous=normal" for each in ("sqlite", "turso")},
    }
    with postgres.lent() if kind == "postgres" else contextlib.nullcontext(files[kind]) as url:
        app = App(url, clock=VirtualClock())
        yield app
        app.close()


def counts(app: App) -> tuple[int, int]:
    """Return the numbers of jobs of the task ``mail`` and of events of the topic ``paid``."""
    return len(app.jobs.select(Filter(task="mail"))), sum(each.events for each in app.topics.sizes())


def parts(app: App) -> tuple[Any, Any]:
    """Declare the task that handlers enqueue, and the topic that they publish to."""

    @app.task
    def mail(number: int) -> None:
        """Do nothing."""

    return mail, app.topic("paid", int)


@every_store
@pytest.mark.parametrize("kind", ["def", "async", "many"])
def test_only_the_attempt_that_succeeds_enqueues(app: App, kind: str):
    """A handler that fails twice enqueues and publishes once, in both colours."""
    mail, paid = parts(app)
    tries: list[int] = []

    def fails_twice() -> None:
        paid.publish(1)
        tries.append(1)
        assert (0, 0) == counts(app)
        if len(tries) < 3:
            raise OSError("down")

    @app.task(name="work", retry="3 1s")
    def plain() -> None:
        job = mail.enqueue(1) if kind == "def" else mail.enqueue_many([1])[0]
        assert job.created
        fails_twice()

    if kind == "async":

        @app.task(name="other", retry="3 1s")
        async def work() -> None:
            await mail.aenqueue(1)
            tries.append(1)
            if len(tries) < 3:
                raise OSError("down")
            paid.publish(1)

        work.enqueue()
    else:
        plain.enqueue()
    drain(app)

    assert (3, (1, 1)) == (len(tries), counts(app))


@every_store
@pytest.mark.parametrize("end", ["dead", "cancel", "timeout", "snooze", "result"])
def test_other_ends_enqueue_nothing(app: App, end: str):
    """An attempt that dies, is cancelled, times out, snoozes or returns what does not fit leaves nothing."""
    mail, paid = parts(app)
    tries: list[int] = []

    @app.task(timeout="50ms" if end == "timeout" else "1m")
    async def work() -> int:
        await mail.aenqueue(1)
        await paid.apublish(1)
        tries.append(1)
        if end == "dead":
            raise ValueError("no")
        if end == "cancel":
            job.cancel()
        if end == "timeout":
            await asyncio.Event().wait()
        if end == "snooze" and len(tries) == 1:
            raise Snooze("1m")
        wrong: Any = "text"
        return 1 if end != "result" else wrong

    job = work.enqueue()
    drain(app)

    assert ((1, 1) if end == "snooze" else (0, 0)) == counts(app)


@every_store
def test_an_attempt_that_has_lost_its_lease_enqueues_nothing(app: App):
    """The end of an attempt that another worker has taken over writes nothing."""
    mail, paid = parts(app)
    tries: list[int] = []

    @app.task(retry="3 1s")
    def work(ctx: Context) -> None:
        mail.enqueue(len(tries))
        paid.publish(1)
        tries.append(1)
        if len(tries) == 1:
            app.jobs.cancel(Filter(task="work"))
            app.job(ctx.job_id).retry()

    work.enqueue()
    drain(app)

    assert (2, (1, 1)) == (len(tries), counts(app))


@every_store
def test_the_job_cannot_be_read_before_the_end(app: App):
    """Every read of the handle in the handler says that the job is not written yet, and names the way out."""
    mail, _ = parts(app)
    found: list[Any] = []

    @app.task
    async def work() -> None:
        job = await mail.aenqueue(1)
        found.append(job)
        for read in (job.refresh, job.result, job.cancel, lambda: job.attempts, lambda: job.state, lambda: job.tags):
            with pytest.raises(JobNotFound, match=r"written when this attempt succeeds.*immediate=True"):
                read()
        for aread in (job.arefresh, job.aresult, job.acancel):
            with pytest.raises(JobNotFound, match="immediate=True"):
                await aread()
        with pytest.raises(JobNotFound, match="immediate=True"):
            app.results([job])
        now = await mail.options(immediate=True).aenqueue(2)
        assert State.READY == (await now.arefresh()).state

    work.enqueue()
    drain(app)

    (job,) = found
    assert State.SUCCEEDED == job.refresh().state


@every_store
def test_immediate_writes_whatever_becomes_of_the_attempt(app: App):
    """Both have the same way out."""
    mail, paid = parts(app)

    @app.task
    async def work() -> None:
        mail.options(immediate=True).enqueue(1)
        paid.publish(1, immediate=True)
        paid.publish_many([1], immediate=True)
        await paid.apublish(1, immediate=True)
        await paid.apublish_many([1], immediate=True)
        raise ValueError("no")

    work.enqueue()
    drain(app)

    assert (1, 4) == counts(app)


@every_store
def test_keys_are_checked_at_once(app: App):
    """A key that another job holds is refused or answered at the call, also if the same attempt has asked for it."""
    mail, _ = parts(app)
    keyed = mail.options(key="k", delay="1h")
    there = keyed.enqueue(0)
    seen: list[int] = []

    @app.task
    def work() -> None:
        with pytest.raises(DuplicateJob, match=f"held by job {there.id}"):
            keyed.enqueue(1)
        joined = keyed.options(on_conflict="existing").enqueue(1)
        assert (there.id, False) == (joined.id, joined.created)
        first = mail.options(key="new").enqueue(2)
        with pytest.raises(DuplicateJob, match="held by"):
            mail.options(key="new").enqueue(3)
        again = mail.options(key="new", on_conflict="existing").enqueue(3)
        assert (first.id, True, False) == (again.id, first.created, again.created)
        with pytest.raises(JobNotFound):
            again.refresh()
        once = mail.options(idempotency_key="i").enqueue(4)
        assert once.id == mail.options(idempotency_key="i").enqueue(5).id
        seen.extend([first.id, once.id])

    work.enqueue()
    drain(app, within="1m")

    assert sorted([there.id, *seen]) == sorted(each.id for each in app.jobs.select(Filter(task="mail")))
    assert seen[1] == mail.options(idempotency_key="i").enqueue(6).id


@every_store
def test_a_key_that_is_taken_in_the_meantime_ends_no_attempt(app: App):
    """The other job stands for that of the handler, whatever its option says; later calls with other keys succeed."""
    mail, _ = parts(app)

    @app.task
    def other() -> None:
        """Do nothing."""

    taken: list[int] = []

    @app.task
    def work() -> None:
        mail.options(key="k").enqueue(1)
        mail.options(key="e", on_conflict="existing").enqueue(1)
        mail.options(idempotency_key="i").enqueue(1)
        mail.debounce("d", quiet="1s", at_most="2s").enqueue(1)
        taken.extend(mail.options(key=each, immediate=True).enqueue(2).id for each in "ked")
        other.options(idempotency_key="i", immediate=True).enqueue()
        taken.append(mail.options(key="unrelated").enqueue(3).id)
        taken.append(mail.options(idempotency_key="unrelated").enqueue(4).id)
        with pytest.raises(DuplicateJob, match="belongs to job"):
            mail.options(idempotency_key="i").enqueue(5)

    job = work.enqueue()
    drain(app)

    assert (State.SUCCEEDED, 1) == (job.refresh().state, len(job.attempts))
    assert sorted(taken) == sorted(each.id for each in app.jobs.select(Filter(task="mail")))


@every_store
def test_a_debounced_job_is_put_off_at_the_end(app: App):
    """Several calls in an attempt make one job, and a call joins a burst that exists."""
    calls: list[int] = []

    @app.task
    def index(number: int) -> None:
        calls.append(number)

    burst = index.debounce("d", quiet="10s", at_most="1h")
    first = burst.enqueue(0)

    @app.task
    def work() -> None:
        joined = burst.enqueue(1)
        assert (first.id, False) == (joined.id, joined.created)
        burst.enqueue(2)
        other = index.debounce("e", quiet="10s", at_most="1h")
        assert other.enqueue(3).id == other.enqueue(4).id

    work.enqueue()
    drain(app)

    assert [2, 4] == sorted(calls)


@lending
def test_a_transaction_of_the_handler_writes_them(app: App):
    """Jobs of the block commit with it; those of a block that is rolled back are dropped; later ones act at once."""
    mail, paid = parts(app)

    @app.task
    def work(ctx: Context) -> None:
        with contextlib.suppress(ZeroDivisionError), ctx.transaction():
            mail.enqueue(0)
            paid.publish(0)
            raise ZeroDivisionError
        with ctx.transaction():
            mail.enqueue(1)
            paid.publish(1)
        assert (1, 1) == counts(app)
        mail.enqueue(2)
        paid.publish(2)
        assert (2, 2) == counts(app)

    @app.task
    async def awork(ctx: Context) -> None:
        with contextlib.suppress(ZeroDivisionError):
            async with ctx.transaction():
                await mail.aenqueue(0)
                raise ZeroDivisionError
        async with ctx.transaction():
            await mail.aenqueue(3)
        await mail.aenqueue(4)

    work.enqueue()
    drain(app)
    awork.enqueue()
    drain(app)

    assert (4, 2) == counts(app)
    assert app.database.verify() == ()


@lending
def test_using_joins_the_given_transaction(app: App):
    """With using= nothing is left to the end of the attempt."""
    mail, _ = parts(app)

    @app.task
    def work(ctx: Context) -> None:
        with ctx.transaction() as connection:
            job = mail.enqueue(1, using=connection)
            assert job.id

    work.enqueue()
    drain(app)

    assert 1 == counts(app)[0]


@every_store
def test_every_kind_of_handler_joins(app: App):
    """Transitions, deliveries, failed deliveries, batches, crons and catches enqueue at their successful ends."""
    mail, paid = parts(app)
    tries: dict[str, int] = {}

    def fails_once(name: str) -> None:
        mail.enqueue(1)
        tries[name] = tries.get(name, 0) + 1
        if tries[name] == 1:
            raise OSError(name)

    @paid.subscribe("one", retry="3 1s")
    def one(number: int) -> None:
        fails_once("one")

    @paid.subscribe("batch", batch=5, retry="3 1s")
    def batch(numbers: list[int]) -> None:
        fails_once("batch")

    order = app.machine("order", retry="3 1s")

    @order.start()
    def begun(number: int) -> None:
        fails_once("machine")

    @app.task(retry="0 catch recover")
    def lost() -> None:
        mail.enqueue(1)
        raise ValueError("no")

    @app.task(retry="3 1s")
    def recover(request: CatchRequest[Any]) -> None:
        fails_once("catch")

    lost.enqueue()
    paid.publish(1)
    order.send("a", 1)
    drain(app)

    assert {"one": 2, "batch": 2, "machine": 2, "catch": 2} == tries
    assert 4 == counts(app)[0]


def test_hooks_and_threads(app: App):
    """A hook of the policy is no part of the attempt and enqueues at once; a thread that outlives it is refused."""
    mail, _ = parts(app)
    found: list[Effects] = []

    @app.task(retry=Policy.parse("1 1s").with_(on_retry=lambda _: mail.enqueue(9)))
    def work() -> None:
        mail.enqueue(1)
        held = joined(app)
        assert held is not None
        found.append(held)
        raise OSError("down")

    work.enqueue()
    drain(app)

    assert 1 == counts(app)[0]
    with pytest.raises(LeaseLost, match="has ended"):
        found[0].check()


@pytest.mark.parametrize("field", ["on", "on_result"])
def test_predicates_enqueue_at_once(app: App, field: str):
    """The predicates of the policy are no part of the attempt, as its hooks are not."""
    mail, _ = parts(app)

    def predicate(_: object) -> bool:
        mail.enqueue(9)
        return False

    @app.task(retry=Policy(attempts=2, **{field: predicate}))
    def work() -> None:
        mail.enqueue(1)
        if field == "on":
            raise ValueError("no")

    work.enqueue()
    drain(app)

    assert (1 if field == "on" else 2) == counts(app)[0]


async def _in_a_thread(call: Callable[[], object]) -> None:
    await asyncio.to_thread(call)


async def _in_a_thread_of_the_loop(call: Callable[[], object]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call)


async def _in_an_own_pool(call: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, call)


@pytest.mark.parametrize("retry", [None, Policy(attempts=1), Policy(attempts=3)], ids=["default", "once", "thrice"])
@pytest.mark.parametrize("way", [_in_a_thread, _in_a_thread_of_the_loop, _in_an_own_pool])
@pytest.mark.parametrize("fails", [True, False])
def test_threads_of_a_coroutine_join(
    app: App, way: Callable[[Callable[[], object]], Awaitable[None]], retry: Policy | None, fails: bool
):
    """What a thread of a handler enqueues joins its end, whatever way leads to the thread and whatever the policy."""
    mail, _ = parts(app)

    @app.task(retry=retry)
    async def work() -> None:
        await way(lambda: mail.enqueue(1))
        if fails:
            raise ValueError("no")

    work.enqueue()
    drain(app)

    assert (0 if fails else 1) == counts(app)[0]


_SHARED = ThreadPoolExecutor(2)


def _by_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def _by_shared_pool(call: Callable[[], object]) -> None:
    _SHARED.submit(call).result()


def _by_own_pool(call: Callable[[], object]) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: call(), [1]))


@every_store
@pytest.mark.parametrize("way", [_by_thread, _by_shared_pool, _by_own_pool])
def test_threads_of_a_def_handler_join(app: App, way: Callable[[Callable[[], object]], None]):
    """What the threads of a handler write in failed attempts leaves nothing, and the last attempt writes it once."""
    mail, paid = parts(app)
    tries: list[int] = []

    @app.task(retry="3 1s")
    def order() -> None:
        way(lambda: (mail.enqueue(1), paid.publish(1)))
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("warehouse")

    order.enqueue()
    drain(app)

    assert (3, (1, 1)) == (len(tries), counts(app))


def test_many_threads_of_an_attempt_lose_nothing(app: App):
    """Threads that enqueue at the same time add each of their jobs."""
    mail, _ = parts(app)

    @app.task
    def order() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(mail.enqueue, range(100)))

    order.enqueue()
    drain(app)

    assert 100 == len(app.jobs.select(Filter(task="mail", limit=200)))


@pytest.mark.parametrize("ends", ["succeeds", "fails"])
def test_a_thread_that_outlives_the_attempt_is_refused(app: App, ends: str):
    """A thread of a handler that has ended writes nothing and gets LeaseLost."""
    mail, paid = parts(app)
    go_on = threading.Event()
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []

    def later() -> None:
        go_on.wait()
        for write in (mail.enqueue, paid.publish):
            try:
                write(1)
            except LeaseLost as error:
                errors.append(error)

    @app.task
    def order() -> None:
        threads.append(threading.Thread(target=later))
        threads[0].start()
        if ends == "fails":
            raise ValueError("no")

    order.enqueue()
    drain(app)
    go_on.set()
    threads[0].join()

    assert (2, (0, 0)) == (len(errors), counts(app))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("way", [lambda call: call(), _by_thread], ids=["directly", "by a thread"])
@lending
def test_a_forked_child_of_a_handler_writes_by_itself(app: App, way: Callable[[Callable[[], object]], None]):
    """The end of the attempt does not write what is added in another process, so that the child writes at once."""
    mail, paid = parts(app)
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                mail.enqueue(1)
                paid.publish(1)
                status = 0
            os._exit(status)
        statuses.append(os.waitpid(child, 0)[1])

    @app.task
    def order() -> None:
        way(fork)
        raise ValueError("no")

    order.enqueue()
    drain(app)

    assert ([0], (1, 1)) == (statuses, counts(app))


@lending
def test_a_thread_inside_of_a_transaction_joins_it(app: App):
    """What a thread enqueues within ctx.transaction() is written or rolled back with it."""
    mail, _ = parts(app)
    seen: list[object] = []

    @app.task(retry="3 1s")
    def order(ctx: Context) -> None:
        with ctx.transaction():
            _by_thread(lambda: seen.append(mail.enqueue(1)))
            if len(seen) < 2:
                raise ConnectionError("warehouse")

    order.enqueue()
    drain(app)

    assert (2, 1) == (len(seen), counts(app)[0])


@every_store
def test_a_handler_that_waits_for_an_answer_enqueues_when_it_returns(app: App):
    """A handler that returns ctx.pending() has ended: its jobs are written with the wait."""
    mail, paid = parts(app)

    @app.task
    def work() -> Any:
        mail.enqueue(1)
        paid.publish(1)
        return Pending("1h")

    work.enqueue()
    drain(app, within="1m")

    assert (1, 1) == counts(app)


def test_times_count_from_the_end(app: App):
    """A delay counts from the transaction that writes the job."""
    mail, _ = parts(app)
    clock = app.clock
    assert isinstance(clock, VirtualClock)
    jobs: list[Any] = []

    @app.task
    def work() -> None:
        jobs.append(mail.options(delay="1m", tags="t").enqueue(1))
        clock.advance(timedelta(minutes=5))

    work.enqueue()
    drain(app, within="5m")

    assert (clock.now(), ("t",)) == (jobs[0].refresh().record.enqueued_at, jobs[0].tags)


def test_other_apps_do_not_join(app: App, tmp_path: Path):
    """What a handler writes to another database is written there at once: it cannot commit with the attempt."""
    other = App(f"sqlite:///{tmp_path}/other.db", clock=app.clock)
    mail, paid = parts(other)

    @app.task
    def work() -> None:
        mail.enqueue(1)
        paid.publish(1)
        raise ValueError("no")

    work.enqueue()
    drain(app)

    assert (1, 1) == counts(other)
    assert 1 == len(app.jobs.select())
    other.close()


def test_no_job_is_no_effect(app: App):
    """An empty list of calls enqueues nothing."""
    mail, _ = parts(app)

    @app.task
    def work() -> None:
        assert [] == mail.enqueue_many([])

    job = work.enqueue()
    drain(app)

    assert (State.SUCCEEDED, 0) == (job.refresh().state, counts(app)[0])
