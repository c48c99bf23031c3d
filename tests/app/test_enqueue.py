"""The forms of enqueueing: one, many, in both colours, under other options, inside the user's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import App, Policy
from redrive.errors import CatchDefinitionError, JobNotFound, PayloadError, PolicySyntaxError, StoreMismatch
from redrive.testing import VirtualClock, drain


def send(number: int) -> None:
    """Take one argument."""


def add(left: int, right: int) -> int:
    """Take two arguments."""
    return left + right


def ping() -> None:
    """Take no argument."""


def test_an_enqueued_job_is_due_at_once(app: App, clock: VirtualClock):
    """Its row has the task, the queue, and the transaction's instant."""
    record = app.task(send).enqueue(7).record

    assert ("send", "default", "ready", 0) == (record.task, record.queue, record.state, record.attempt)
    assert (clock.now(), clock.now()) == (record.enqueued_at, record.scheduled_at)


def test_jobs_can_be_enqueued_from_coroutines(app: App):
    """``aenqueue`` and ``aenqueue_many`` do what the plain forms do."""
    task = app.task(add)

    async def both() -> list[int]:
        """Enqueue in both forms."""
        one = await task.aenqueue(1, right=2)
        two = await task.aenqueue_many([(3, 4), (5, 6)])
        return [one.id, *(job.id for job in two)]

    numbers = asyncio.run(both())
    drain(app)

    assert [1, 2, 3] == numbers
    assert [3, 7, 11] == [app.job(number).result() for number in numbers]


def test_many_calls_of_one_argument(app: App):
    """For tasks of one parameter, enqueue_many takes the arguments in order."""
    jobs = app.task(send).enqueue_many(range(3))

    assert [1, 2, 3] == [job.id for job in jobs]


def test_many_calls_of_several_arguments(app: App):
    """For tasks of several parameters, enqueue_many takes tuples."""
    jobs = app.task(add).enqueue_many([(1, 2), (3, 4)])
    drain(app)

    assert [3, 7] == [job.result() for job in jobs]


def test_many_calls_without_arguments(app: App):
    """For tasks without parameters, enqueue_many takes empty tuples."""
    assert 2 == len(app.task(ping).enqueue_many([(), ()]))


def test_no_calls_are_no_jobs(app: App):
    """Empty lists of calls are valid and enqueue nothing."""
    assert [] == app.task(send).enqueue_many([])
    assert () == app.jobs.select()


def test_one_invalid_call_in_a_batch_enqueues_no_job(app: App):
    """If one call is invalid, the message has its index and nothing is written."""
    with pytest.raises(PayloadError, match=r"call 2: send: .*Expected `int`, got `str`"):
        app.task(send).enqueue_many([1, 2, "three", 4])

    assert () == app.jobs.select()


def test_a_call_of_several_arguments_that_is_no_tuple_is_refused(app: App):
    """Calls that are no tuples are refused with the number of arguments."""
    with pytest.raises(PayloadError, match="add: call 1 must be a tuple of 2 arguments"):
        app.task(add).enqueue_many([(1, 2), 3])

    assert () == app.jobs.select()


# ------------------------------------------------------------------------------------------------------------- options


def test_options_change_one_job_only(app: App, clock: VirtualClock):
    """Delay, priority, queue and policy differ for the jobs enqueued through options()."""
    task = app.task(queue="slow")(send)
    other = task.options(delay="5m", priority=-1, queue="fast", retry="2 1s").enqueue(1).record
    plain = task.enqueue(2).record

    assert ("fast", -1, 3) == (other.queue, other.priority, other.policy.attempts)
    assert clock.now() + timedelta(minutes=5) == other.scheduled_at
    assert ("slow", 0, 1, clock.now()) == (plain.queue, plain.priority, plain.policy.attempts, plain.scheduled_at)


def test_options_add_up(app: App):
    """Options that a second options() leaves out stay as the first one set them."""
    record = app.task(send).options(queue="fast").options(priority=3).enqueue(1).record

    assert ("fast", 3) == (record.queue, record.priority)


def test_another_policy_leaves_a_task_run_at_most_once(app: App):
    """``retry=`` of a job replaces the policy, but not ``idempotent=False`` of its task."""
    task = app.task(retry="1 1s", idempotent=False, timeout="30s")(send)
    kept = task.options(retry="5 2s").enqueue(1).record.policy
    stored = task.options(retry=Policy(attempts=2, idempotent=True, attempt_timeout=1)).enqueue(1).record.policy

    assert (6, False, timedelta(seconds=30)) == (kept.attempts, kept.idempotent, kept.attempt_timeout)
    assert (2, True, timedelta(seconds=1)) == (stored.attempts, stored.idempotent, stored.attempt_timeout)


def test_options_that_cannot_be_read_are_refused(app: App):
    """Invalid directives are refused with the task, invalid delays with the valid forms."""
    task = app.task(send)

    with pytest.raises(PolicySyntaxError, match="task send: "):
        task.options(retry="often")
    with pytest.raises(PolicySyntaxError):
        task.options(delay="later")


def test_options_cannot_name_a_catch_task_that_is_not_there(app: App):
    """Catch tasks of a job's own policy are checked at the enqueue, and nothing is written."""
    task = app.task(send)

    with pytest.raises(CatchDefinitionError, match="task 'send' is to be caught by 'recover', but there is no such"):
        task.options(retry="1 1s catch recover").enqueue(1)

    assert () == app.jobs.select()


# ------------------------------------------------------------------------------------- the user's own transaction


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[App]:
    """Yield an app on a file that the test's own connection opens too."""
    app = App(f"sqlite:///{tmp_path}/shop.db?synchronous=normal")
    app.task(send)
    app.jobs.stats()
    yield app
    app.close()


@pytest.fixture
def own(tmp_path: Path, shop: App) -> Iterator[sqlite3.Connection]:
    """Yield a connection of the test, with a table of its own."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE orders (number INTEGER)")
    connection.commit()
    yield connection
    connection.close()


def orders(connection: sqlite3.Connection) -> int:
    """Return the number of orders."""
    return connection.execute("SELECT count(*) FROM orders").fetchone()[0]


def test_a_job_exists_if_the_users_transaction_commits(shop: App, own: sqlite3.Connection):
    """Before the commit there is no job to be seen; after it there is one, and the order too."""
    own.execute("INSERT INTO orders VALUES (7)")
    job = shop.tasks["send"].enqueue(7, using=own)
    before = shop.jobs.stats().due
    with pytest.raises(JobNotFound, match=f"there is no job {job.id}"):
        job.refresh()
    own.commit()

    assert (0, 1, "ready", 1) == (before, shop.jobs.stats().due, job.refresh().state, orders(own))


def test_a_rollback_of_the_users_transaction_removes_the_job(shop: App, own: sqlite3.Connection):
    """After a rollback there is neither the order nor the job."""
    own.execute("INSERT INTO orders VALUES (7)")
    job = shop.tasks["send"].enqueue(7, using=own)
    own.rollback()

    with pytest.raises(JobNotFound):
        job.refresh()
    assert (0, 0) == (shop.jobs.stats().due, orders(own))


def test_many_jobs_join_the_users_transaction(shop: App, own: sqlite3.Connection):
    """``enqueue_many`` takes the connection as well."""
    shop.tasks["send"].enqueue_many([1, 2, 3], using=own)
    own.rollback()
    shop.tasks["send"].enqueue_many([4, 5], using=own)
    own.commit()

    assert 2 == shop.jobs.stats().due


def test_a_refused_argument_leaves_the_users_transaction_alone(shop: App, own: sqlite3.Connection):
    """After an enqueue that failed, the user's transaction can be committed."""
    own.execute("INSERT INTO orders VALUES (7)")
    with pytest.raises(PayloadError):
        shop.tasks["send"].enqueue("seven", using=own)
    own.commit()

    assert (0, 1) == (shop.jobs.stats().due, orders(own))


def test_a_connection_to_another_database_is_refused(shop: App, tmp_path: Path):
    """Connections to another file are refused, because this app could not run the job."""
    elsewhere = sqlite3.connect(tmp_path / "elsewhere.db")
    elsewhere.execute("CREATE TABLE orders (number INTEGER)")

    with pytest.raises(StoreMismatch, match=r"elsewhere\.db, but the app's jobs are in .*shop\.db"):
        shop.tasks["send"].enqueue(1, using=elsewhere)
    elsewhere.close()
