"""What is repeated before COMMIT: everything of which the database is known to have kept nothing."""

# ruff: noqa: S608 - the names in the statements are those of the tests' own tables

from __future__ import annotations

import asyncio
from threading import Thread

import pytest

from redrive.clock import SystemClock
from redrive.policy import Policy
from tests import postgres
from tests.contrib.transactions.libraries import PATIENT, Library, Once, Second, some
from tests.proxy import FaultKind


def test_a_transaction_that_succeeds_is_run_once(library, table):
    """Transactions that succeed are not repeated."""
    assert "done" == library.call(table.insert)
    assert (1, [1]) == (library.attempts, table.rows)


def test_a_serialization_failure_repeats_the_reads_too(library, table):
    """Second attempts read the number again."""

    def interfere():
        table.ask("BEGIN ISOLATION LEVEL SERIALIZABLE")
        table.ask(f"INSERT INTO {table.name} SELECT 10 + count(*) FROM {table.name}")
        table.ask("COMMIT")

    count = f"INSERT INTO {table.name} SELECT count(*) FROM {table.name}"
    read = f"SELECT count(*) FROM {table.name}"

    assert "done" == library.call(read, Once(interfere), count, isolation="serializable")
    assert (2, [1, 10]) == (library.attempts, table.rows)


def test_the_victim_of_a_deadlock_is_repeated(library, table):
    """Two sessions want each other's row; the one that is thrown out runs again."""
    table.ask(f"INSERT INTO {table.name} VALUES (10), (20)")
    threads = []

    def update(row: int) -> str:
        return f"UPDATE {table.name} SET n = n + 1 WHERE n / 10 = {row}"

    def embrace():
        other = postgres.connect(autocommit=False)
        other.execute("SET LOCAL deadlock_timeout = '1h'")
        other.execute(update(2))
        pid = other.info.backend_pid
        threads.append(Thread(target=lambda: (other.execute(update(1)), other.commit(), other.close())))
        threads[0].start()
        while not table.ask(f"SELECT 1 FROM pg_locks WHERE pid = {pid} AND NOT granted"):
            SystemClock().sleep(0.001)

    assert "done" == library.call("SET LOCAL deadlock_timeout = '1ms'", update(1), Once(embrace), update(2))
    threads[0].join()
    assert (2, [12, 22]) == (library.attempts, table.rows)


def test_a_session_that_was_killed_before_commit_is_repeated_on_another(library, table):
    """Killed sessions are rolled back by the server, so the policy need not be idempotent."""
    assert "done" == library.call(table.insert, Once(table.kill), table.insert)
    assert (2, [1, 1]) == (library.attempts, table.rows)


def test_a_connection_that_is_cut_before_commit_is_repeated(far, proxy, table):
    """Connections that are cut before COMMIT have stored nothing, whatever their last statement did."""
    proxy.on(FaultKind.CUT_AFTER, when=b"INSERT")

    assert "done" == far.call(table.insert)
    assert (2, [1]) == (far.attempts, table.rows)


@some
def test_a_server_that_cannot_be_reached_is_tried_again(far, proxy, table):
    """Connections that are cut while they open cost one attempt."""
    proxy.on(FaultKind.CUT_BEFORE, when=b"postgres", times=2)

    assert "done" == far.call(table.insert)
    assert [1] == table.rows
    assert (3 if "session" in far.kind else 1) == far.attempts  # a session connects at its first statement


@some
def test_a_lock_timeout_is_retried(library, table):
    """lock_timeout has ended the wait; in the second attempt the lock is free."""
    other = postgres.connect(autocommit=False)
    other.execute(f"LOCK TABLE {table.name} IN SHARE MODE")
    release = Second(other.rollback)

    assert "done" == library.call(release, "SET LOCAL lock_timeout = '1ms'", table.insert)
    other.close()
    assert (2, [1]) == (library.attempts, table.rows)


@some
def test_a_connection_to_a_read_only_server_is_replaced(library, table):
    """After a failover the old primary accepts no writes: the next attempt connects anew."""
    role = f"{table.name}_role"
    table.ask(f"CREATE ROLE {role} LOGIN")
    table.ask(f"GRANT INSERT ON {table.name} TO {role}")
    table.ask(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    library.log_in(role)
    recover = Once(lambda: table.ask(f"ALTER ROLE {role} SET default_transaction_read_only = off"))

    assert "done" == library.call("SELECT 1", recover, table.insert)
    assert (2, [1]) == (library.attempts, table.rows)


@some
@pytest.mark.parametrize("statement", ["SELECT 1 / 0", "SELEC", "SELECT * FROM nowhere"])
def test_a_syntax_error_is_not_repeated(library, statement):
    """Statements with a syntax error are not repeated."""
    with pytest.raises(Exception, match=r"division by zero|syntax error|does not exist"):
        library.call(statement)

    assert 1 == library.attempts


@some
def test_an_error_of_the_function_itself_is_rolled_back_and_raised(library, table):
    """Exceptions that are not retried are raised unchanged."""

    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        library.call(table.insert, fail)

    assert (1, []) == (library.attempts, table.rows)


@some
def test_a_session_that_ends_with_an_error_of_the_function_is_not_used_again(library, table):
    """Dead sessions need no ROLLBACK."""

    def fail():
        table.kill()
        raise KeyError("mine")

    policy = Policy.parse(PATIENT).with_(on=KeyError)

    assert "done" == library.call(table.insert, Once(fail), policy=policy)
    assert (2, [1]) == (library.attempts, table.rows)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg async", "asyncpg"])
def test_a_lost_connection_whose_error_was_caught_inside_is_repeated(library, table):
    """Left to psycopg, such a block would end without a word; here it is repeated."""
    assert "done" == library.call(table.insert, Once(table.kill), "try:SELECT 1")
    assert (2, [1]) == (library.attempts, table.rows)


@some
def test_named_exceptions_are_repeated(library, table):
    """Names may be exceptions of the function's own."""

    def fail():
        raise KeyError("mine")

    policy = Policy.parse(PATIENT).with_(on=KeyError)

    assert "done" == library.call(table.insert, Once(fail), policy=policy)
    assert (2, [1]) == (library.attempts, table.rows)


@some
def test_a_policy_with_names_retries_only_these(library, table):
    """Deadlocks are not retried by a policy for serialisation failures."""
    policy = Policy.parse(PATIENT).with_(on="DEADLOCK_DETECTED")

    with pytest.raises(Exception, match="mine"):
        library.call("DO $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '40001'; END $$", policy=policy)

    assert 1 == library.attempts


@some
def test_an_integrity_error_is_repeated_only_if_it_is_named(library, table):
    """Another transaction was quicker to insert the row, which this one will see the next time."""
    table.ask(f"ALTER TABLE {table.name} ADD UNIQUE (n)")
    table.ask(table.insert)
    policy = Policy.parse(PATIENT).with_(on="UNIQUE_VIOLATION")
    move = Second(lambda: table.ask(f"UPDATE {table.name} SET n = 0"))

    assert "done" == library.call(move, table.insert, policy=policy)
    assert (2, [0, 1]) == (library.attempts, table.rows)


@some
def test_the_time_that_is_left_bounds_the_statements(library, table):
    """Explicit deadlines become the server's statement_timeout, unless that is lower."""
    limit = f"INSERT INTO {table.name} SELECT EXTRACT(EPOCH FROM current_setting('statement_timeout')\\:\\:interval)"
    limit = limit if "engine" in library.kind or "session" in library.kind else limit.replace("\\", "")
    strict = Library(library.kind, postgres.server(), 5432, table.name, statement_timeout="7000")

    library.call(limit, policy=Policy.parse(PATIENT))
    strict.call(limit, policy=Policy.parse(PATIENT).with_(deadline="1h"))
    library.call(limit, policy=Policy.parse(PATIENT).with_(deadline="1h"))

    none, own, given = table.rows
    assert (0, 7) == (none, own)
    assert 3000 < given <= 3600


@pytest.mark.parametrize("kind", ["psycopg", "psycopg async", "asyncpg", "engine", "async session"])
def test_an_attempt_that_took_too_long_is_repeated(library, table):
    """It is ended by the server, or cancelled: before COMMIT that is as good as an answer."""
    slow = iter(["SELECT pg_sleep(60)", *["SELECT 1"] * 99])
    policy = Policy.parse("20 1ms").with_(attempt_timeout="200ms")

    class SlowText(str):
        __slots__ = ()

        def removeprefix(self, prefix, /):
            return next(slow)

    assert "done" == library.call(table.insert, SlowText("slow"), policy=policy)
    assert [1] == table.rows
    assert library.attempts > 1


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg async", "async session"])
def test_a_cancelled_transaction_is_rolled_back(library, table):
    """Cancelled transactions are rolled back and not repeated."""

    async def work():
        inside = asyncio.Event()

        @library.module.transactional(library.source(), PATIENT)
        async def wait(given):
            library.attempts += 1
            await library.execute(given, table.insert)
            inside.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(wait())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert (1, []) == (library.attempts, table.rows)


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_an_attempt_that_is_cut_off_in_its_commit_is_ambiguous(far, proxy, table):
    """Attempts without an answer to their COMMIT in time are not repeated."""
    fault = proxy.on(FaultKind.HOLD, when=b"COMMIT")
    policy = Policy.parse(PATIENT).with_(attempt_timeout="500ms")

    with pytest.raises(TimeoutError) as caught:
        far.call(table.insert, policy=policy)

    fault.wait_answered()
    fault.release()
    assert "not_idempotent" == caught.value.__retry__.rule
    assert (1, [1]) == (far.attempts, table.rows)
