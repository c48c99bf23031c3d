"""Writes on PostgreSQL with a lost connection: which outcomes are certain, and which are unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from redrive import App, Context, Filter, Pending
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed, Outcome, Succeeded, Suspended
from redrive.errors import OutcomeUnknown, StoreError, StoreUnreachable
from redrive.policy import Failure
from redrive.stores.operations import jobs, leases
from redrive.stores.operations.leases import Ending
from tests import postgres
from tests.proxy import Fault, FaultKind, Proxy
from tests.runtime.helpers import take
from tests.stores.helpers import LONG

COMMIT = b"COMMIT\0"
MARK = "a-mark-in-the-arguments"


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Start a proxy that cuts connections to the server."""
    with Proxy(f"{postgres.server()}/.s.PGSQL.5432") as running:
        yield running


def tasks(app: App) -> App:
    """Register the tasks of these tests."""

    @app.task
    def note(text: str) -> str:
        """Succeed."""
        return text

    @app.task
    def broken() -> None:
        """Fail."""
        raise ValueError("broken")

    @app.task
    async def wait(context: Context) -> str | Pending:
        """Wait for an answer."""
        return Pending()

    @app.refresh("Refresh every hour")
    def table(text: str) -> None:
        """Be kept fresh."""

    return app


@dataclass
class ProxiedApps:
    """Two apps on one database.

    Attributes:
        near: on a direct connection.
        far: behind the proxy.
        memory: what the preparation of a case leaves for the rest of it.
    """

    near: App
    far: App
    memory: Any = field(default=None)

    def state(self) -> State:
        """Return the stored state of the prepared job."""
        return self.near.job(self.memory.id).record.state

    def marked(self) -> int:
        """Return the number of jobs with the mark as their argument."""
        return sum(MARK.encode() in (self._payload(job.id) or b"") for job in self.near.jobs.select())

    def _payload(self, number: int) -> bytes | None:
        return self.near.store.run(jobs.documents({number: None}))[number].payload


@pytest.fixture
def fleet(proxy: Proxy) -> Iterator[ProxiedApps]:
    """Two apps, one of which talks through the proxy."""
    schema = postgres.fresh()
    near = tasks(App(postgres.url(schema))).open()
    far = tasks(App(postgres.url(schema, host=proxy.host, port=str(proxy.port)))).open()
    yield ProxiedApps(near, far)
    for app in (near, far):
        app.close()


def enqueued(fleet: ProxiedApps) -> None:
    """Prepare a job that waits."""
    fleet.memory = fleet.near.tasks["note"].enqueue("x")


def ended(app: App, outcome: Outcome) -> None:
    """Run the job that is due, with this outcome."""
    app.store.run(leases.settle([Ending(take(app)[0], outcome, 0.0)]))


def dead(fleet: ProxiedApps) -> None:
    """Prepare a dead job."""
    fleet.memory = fleet.near.tasks["broken"].enqueue()
    ended(fleet.near, Failed(Failure((), "broken")))


def waiting(fleet: ProxiedApps) -> None:
    """Prepare a job that waits for an answer."""
    fleet.memory = fleet.near.tasks["wait"].enqueue()
    ended(fleet.near, Suspended(timedelta(days=1)))


def running(fleet: ProxiedApps) -> None:
    """Prepare a job that runs."""
    enqueued(fleet)
    fleet.memory.claim = take(fleet.near)[0]


def token(fleet: ProxiedApps) -> str:
    """Return the token of the waiting attempt."""
    return f"{fleet.memory.id}.{fleet.near.job(fleet.memory.id).record.lease_id}"


def settle(fleet: ProxiedApps) -> Any:
    """Return the operation by which a worker ends an attempt."""
    return leases.settle([Ending(fleet.memory.claim, Succeeded(b"1"), 0.0)])


def nothing(fleet: ProxiedApps) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class WriteCase:
    """One write, in both colours.

    Attributes:
        run: does it in the synchronous form.
        arun: does it in the asynchronous form.
        done: has it taken effect?
        prepare: runs before it, over the direct connection.
        commits: bytes of the statement that commits it.
        before: bytes of a statement before that.
    """

    run: Callable[[ProxiedApps], Any]
    arun: Callable[[ProxiedApps], Any] | None
    done: Callable[[ProxiedApps], object]
    prepare: Callable[[ProxiedApps], None] = nothing
    commits: bytes = COMMIT
    before: bytes = b"BEGIN"


CASES = {
    "enqueue": WriteCase(
        lambda f: f.far.tasks["note"].enqueue(MARK),
        lambda f: f.far.tasks["note"].aenqueue(MARK),
        lambda f: f.marked() == 1,
        commits=MARK.encode(),
        # There is no statement before it but the settings of the session.
        before=b"enable_seqscan",
    ),
    "enqueue with a key": WriteCase(
        lambda f: f.far.tasks["note"].options(key="k").enqueue(MARK),
        lambda f: f.far.tasks["note"].options(key="k").aenqueue(MARK),
        lambda f: f.marked() == 1,
    ),
    "enqueue_many": WriteCase(
        lambda f: f.far.tasks["note"].enqueue_many([MARK, MARK]),
        lambda f: f.far.tasks["note"].aenqueue_many([MARK, MARK]),
        lambda f: f.marked() == 2,
        commits=MARK.encode(),
        before=b"nextval",
    ),
    "cancel": WriteCase(
        lambda f: f.far.job(f.memory.id).cancel(),
        lambda f: f.far.job(f.memory.id).acancel(),
        lambda f: f.state() is State.CANCELLED,
        enqueued,
    ),
    "cancel many": WriteCase(
        lambda f: f.far.jobs.cancel(Filter(task="note", limit=9)),
        None,
        lambda f: f.state() is State.CANCELLED,
        enqueued,
    ),
    "retry": WriteCase(
        lambda f: f.far.job(f.memory.id).retry(),
        lambda f: f.far.job(f.memory.id).aretry(),
        lambda f: f.state() is State.READY,
        dead,
    ),
    "redrive": WriteCase(
        lambda f: f.far.jobs.redrive(Filter(task="broken", limit=9)), None, lambda f: f.state() is State.READY, dead
    ),
    "answer": WriteCase(
        lambda f: f.far.fail(token(f), "no"),
        lambda f: f.far.afail(token(f), "no"),
        lambda f: f.state() is State.DEAD,
        waiting,
    ),
    "settle": WriteCase(
        lambda f: f.far.store.run(settle(f)),
        lambda f: f.far.store.arun(settle(f)),
        lambda f: f.state() is State.SUCCEEDED,
        running,
    ),
    "track": WriteCase(
        lambda f: f.far.tasks["table"].track("key", "x"),
        lambda f: f.far.tasks["table"].atrack("key", "x"),
        lambda f: [each.key for each in f.near.tasks["table"].tracked()] == ["key"],
    ),
}
BOTH = [(name, colour) for name, case in CASES.items() for colour in ("sync", "async") if case.arun or colour == "sync"]


def write(case: WriteCase, fleet: ProxiedApps, colour: str) -> Any:
    """Do it in one of the colours."""
    if colour == "sync":
        return case.run(fleet)

    async def run() -> Any:
        """Await it."""
        assert case.arun is not None
        return await case.arun(fleet)

    return asyncio.run(run())


@pytest.mark.parametrize(("name", "colour"), BOTH)
def test_a_lost_answer_to_a_commit_is_an_unknown_outcome(fleet: ProxiedApps, proxy: Proxy, name: str, colour: str):
    """After a commit with a lost answer the write is stored, and the error does not deny it."""
    case = CASES[name]
    case.prepare(fleet)
    fault = proxy.on(FaultKind.CUT_AFTER, case.commits)
    with pytest.raises(OutcomeUnknown, match="it is unknown whether it took effect: check") as caught:
        write(case, fleet, colour)

    assert 1 == fault.hits
    assert case.done(fleet)
    assert isinstance(caught.value, StoreError)
    assert not isinstance(caught.value, StoreUnreachable)
    assert name.startswith("enqueue") == ("idempotency_key=" in str(caught.value))


@pytest.mark.parametrize(("name", "colour"), BOTH)
def test_a_connection_that_is_lost_before_the_commit_has_written_nothing(
    fleet: ProxiedApps, proxy: Proxy, name: str, colour: str
):
    """Transactions that did not end are not stored, and the error states that."""
    case = CASES[name]
    case.prepare(fleet)
    proxy.on(FaultKind.CUT_AFTER, case.before, times=99)
    with pytest.raises(StoreUnreachable, match="wrote nothing"):
        write(case, fleet, colour)

    assert not case.done(fleet)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("name", ["enqueue", "enqueue with a key", "cancel"])
def test_a_server_that_refuses_connections_has_got_nothing(fleet: ProxiedApps, proxy: Proxy, name: str, colour: str):
    """If no statement was sent, no job was enqueued or changed."""
    case = CASES[name]
    case.prepare(fleet)
    proxy.refuse()
    with pytest.raises(StoreUnreachable, match="wrote nothing"):
        write(case, fleet, colour)

    assert not case.done(fleet)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_read_has_no_outcome(fleet: ProxiedApps, proxy: Proxy, colour: str):
    """Lost answers to reads leave no unknown outcome."""
    proxy.on(FaultKind.CUT_AFTER, COMMIT, times=99)
    enqueued(fleet)
    job = fleet.far.job(fleet.memory.id)
    with pytest.raises(StoreUnreachable):
        job.refresh() if colour == "sync" else asyncio.run(job.arefresh())


def test_a_settle_may_be_repeated(fleet: ProxiedApps, proxy: Proxy):
    """Workers repeat a settle with an unknown outcome: the lease settles once, and is not reported as lost."""
    running(fleet)
    proxy.on(FaultKind.CUT_AFTER, COMMIT)
    with pytest.raises(OutcomeUnknown):
        fleet.far.store.run(settle(fleet))

    assert frozenset() == fleet.far.store.run(settle(fleet)).lost


def test_an_enqueue_with_an_idempotency_key_may_be_repeated(fleet: ProxiedApps, proxy: Proxy):
    """As the message advises: the second call answers the job of the first."""
    proxy.on(FaultKind.CUT_AFTER, COMMIT)
    once = fleet.far.tasks["note"].options(idempotency_key="order-7")
    with pytest.raises(OutcomeUnknown, match="idempotency_key="):
        once.enqueue(MARK)
    job = once.enqueue(MARK)

    assert (False, 1) == (job.created, fleet.marked())


def test_a_migration_with_a_lost_commit_can_be_repeated(proxy: Proxy):
    """Opening the app again finds the tables, or creates them."""
    url = postgres.url(host=proxy.host, port=str(proxy.port))
    proxy.on(FaultKind.CUT_AFTER, COMMIT)
    with pytest.raises(OutcomeUnknown, match="commit of the migration"):
        App(url).open()

    App(url).open().close()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lost_commit_of_the_handlers_transaction(fleet: ProxiedApps, proxy: Proxy, colour: str):
    """If the connection of ``ctx.transaction()`` is cut, the block raises that its outcome is unknown."""
    running(fleet)

    def borrow() -> None:
        """Commit the end of the attempt on a connection of psycopg."""
        loan = fleet.far.store.begin()
        loan.run(settle(fleet))
        loan.commit()

    async def aborrow() -> None:
        """Write on asyncpg."""
        loan = await fleet.far.store.abegin()
        await loan.run(settle(fleet))
        await loan.commit()

    fault = proxy.on(FaultKind.CUT_AFTER, b"COMMIT; CLOSE ALL")
    with pytest.raises(OutcomeUnknown, match=r"commit of ctx.transaction\(\)"):
        borrow() if colour == "sync" else asyncio.run(aborrow())

    assert (1, State.SUCCEEDED) == (fault.hits, fleet.state())


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("library", ["psycopg", "psycopg async", "asyncpg"])
def test_a_users_connection_in_autocommit_mode(fleet: ProxiedApps, proxy: Proxy, library: str, key: str | None):
    """Without a transaction of the user's the enqueue commits by itself, and its answer may be lost."""
    commit = b"COMMIT;\0" if library == "asyncpg" else COMMIT
    fault = Fault(FaultKind.CUT_AFTER, MARK.encode() if key is None else commit)
    place = {"host": proxy.host, "port": proxy.port, "user": "postgres"}

    def enqueue() -> None:
        """Enqueue on a synchronous connection."""
        with psycopg.connect(dbname="postgres", autocommit=True, **place) as connection:
            fleet.far.tasks["note"].enqueue("before", using=connection)
            proxy.faults.append(fault)
            fleet.far.tasks["note"].options(key=key).enqueue(MARK, using=connection)

    async def aenqueue() -> None:
        """Enqueue on an asynchronous connection."""
        connection: Any
        if library == "asyncpg":
            connection = await asyncpg.connect(database="postgres", **place)
        else:
            connection = await psycopg.AsyncConnection.connect(dbname="postgres", autocommit=True, **place)
        try:
            await fleet.far.tasks["note"].aenqueue("before", using=connection)
            proxy.faults.append(fault)
            await fleet.far.tasks["note"].options(key=key).aenqueue(MARK, using=connection)
        finally:
            connection.terminate() if library == "asyncpg" else await connection.close()

    with pytest.raises(OutcomeUnknown, match="idempotency_key="):
        enqueue() if library == "psycopg" else asyncio.run(aenqueue())

    assert (1, 1) == (fault.hits, fleet.marked())


@pytest.mark.parametrize(("key", "cut"), [(None, MARK.encode()), ("k", b"RELEASE")])
def test_a_users_transaction_that_is_cut_has_enqueued_nothing(
    fleet: ProxiedApps, proxy: Proxy, key: str | None, cut: bytes
):
    """Inside a transaction of the user's nothing is committed: what is lost with it is certain."""
    connection = psycopg.connect(host=proxy.host, port=proxy.port, user="postgres", dbname="postgres")
    proxy.on(FaultKind.CUT_AFTER, cut)
    with pytest.raises(StoreUnreachable, match="wrote nothing"):
        fleet.far.tasks["note"].options(key=key).enqueue(MARK, using=connection)
    connection.close()

    assert 0 == fleet.marked()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_failure_after_a_committed_part_is_an_unknown_outcome(fleet: ProxiedApps, proxy: Proxy, colour: str):
    """Claims with a committed first statement and a cut second one are of unknown outcome."""
    enqueued(fleet)
    claim = leases.claim(999, 1, lease_for=LONG)  # of a worker that is not registered
    fault = proxy.on(FaultKind.CUT_AFTER, b"BEGIN", times=99)
    with pytest.raises(OutcomeUnknown, match="commit of claim"):
        fleet.far.store.run(claim) if colour == "sync" else asyncio.run(fleet.far.store.arun(claim))

    assert 1 == fault.hits
