"""COMMITs with a lost answer, or with an error as their answer."""

# ruff: noqa: S608 - the names in the statements are those of the tests' own tables

from __future__ import annotations

import pytest

from redrive.contrib.transactions import commit_status
from redrive.errors import OutcomeUnknown
from redrive.policy import Policy, Stage
from redrive.policy.failure import Lasting
from tests.contrib.transactions.libraries import PATIENT, Once, some
from tests.proxy import FaultKind


@pytest.mark.case("python_clients/psycopg/commit_lost")
@pytest.mark.parametrize(("cut", "rows"), [(FaultKind.CUT_BEFORE, []), (FaultKind.CUT_AFTER, [1])])
def test_a_lost_commit_is_ambiguous(far, proxy, table, cut, rows):
    """Lost COMMITs are not repeated, and the error calls their outcome unknown."""
    fault = proxy.on(cut, when=b"COMMIT")

    with pytest.raises(OutcomeUnknown, match="it is unknown whether the transaction was committed") as caught:
        far.call(table.insert)

    assert (1, 1, rows) == (fault.hits, far.attempts, table.rows)
    assert caught.value.__cause__ is not None
    assert "not_idempotent" == caught.value.__retry__.rule


@pytest.mark.parametrize(("cut", "attempts"), [(FaultKind.CUT_BEFORE, 2), (FaultKind.CUT_AFTER, 1)])
def test_a_proof_settles_a_lost_commit(far, proxy, table, cut, attempts):
    """Asked for its status, the transaction that was committed is not repeated, and the other one is."""
    fault = proxy.on(cut, when=b"COMMIT")

    assert "done" == far.call(table.insert, prove=True)
    assert (1, attempts, [1]) == (fault.hits, far.attempts, table.rows)


@some
def test_an_idempotent_transaction_is_repeated_after_a_lost_commit(far, proxy, table):
    """Under a policy with idempotent=True a lost COMMIT is repeated, and takes effect twice here."""
    proxy.on(FaultKind.CUT_AFTER, when=b"COMMIT")

    assert "done" == far.call(table.insert, policy=Policy.parse(PATIENT).with_(idempotent=True))
    assert (2, [1, 1]) == (far.attempts, table.rows)


@some
def test_a_lost_commit_of_what_has_written_nothing_is_repeated(far, proxy, table):
    """With a proof, a transaction without a number cannot be there twice."""
    proxy.on(FaultKind.CUT_AFTER, when=b"COMMIT")

    assert "done" == far.call(f"SELECT n FROM {table.name}", prove=True)
    assert 2 == far.attempts


@some
def test_a_proof_that_does_not_come_leaves_it_ambiguous(far, proxy, table, monkeypatch):
    """Without an answer in time, the outcome is unknown."""
    monkeypatch.setattr(commit_status, "PATIENCE", 0 * commit_status.PATIENCE)
    proxy.on(FaultKind.CUT_BEFORE, when=b"COMMIT")
    proxy.on(FaultKind.CUT_BEFORE, when=b"pg_xact_status", times=9)

    with pytest.raises(OutcomeUnknown):
        far.call(table.insert, prove=True)

    assert (1, []) == (far.attempts, table.rows)


@some
def test_another_timeline_proves_nothing(far, proxy, table, monkeypatch):
    """Standbys that were promoted may have given the id to another transaction."""
    monkeypatch.setattr(
        commit_status, "_STATUS", commit_status._STATUS.replace("= '{timeline}'", "= '{timeline}' || 'F'")
    )
    proxy.on(FaultKind.CUT_AFTER, when=b"COMMIT")

    with pytest.raises(OutcomeUnknown):
        far.call(table.insert, prove=True)

    assert (1, [1]) == (far.attempts, table.rows)


@some
def test_a_role_without_rights_can_prove(library, table):
    """Reading the receipt needs no privilege."""
    role = f"{table.name}_role"
    table.ask(f"CREATE ROLE {role}")
    table.ask(f"GRANT INSERT ON {table.name} TO {role}")

    assert "done" == library.call(f"SET LOCAL ROLE {role}", table.insert, prove=True)
    assert [1] == table.rows


def test_a_commit_that_is_answered_with_an_error_has_stored_nothing(library, table):
    """Deferred constraints that fail in COMMIT raise the library's own error, not an unknown outcome."""
    table.ask(f"ALTER TABLE {table.name} ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")

    with pytest.raises(Exception, match="duplicate key") as caught:
        library.call(table.insert, table.insert)

    failure = library.module.failure_of(caught.value)
    assert ("UNIQUE_VIOLATION", Lasting(), Stage.ANSWERED) == (failure.reason, failure.lasting, failure.stage)
    assert (1, []) == (library.attempts, table.rows)


def test_a_commit_that_cannot_be_serialised_is_repeated(library, table):
    """Serialisation failures in COMMIT repeat the whole transaction."""

    def interfere():
        table.ask("BEGIN ISOLATION LEVEL SERIALIZABLE")
        table.ask(f"INSERT INTO {table.name} SELECT 10 + count(*) FROM {table.name}")
        table.ask("COMMIT")

    count = f"INSERT INTO {table.name} SELECT count(*) FROM {table.name}"

    assert "done" == library.call(count, Once(interfere), isolation="serializable")
    assert (2, [1, 10]) == (library.attempts, table.rows)


def test_an_error_that_was_caught_inside_is_not_committed_silently(library, table):
    """PostgreSQL answers such a COMMIT with a rollback and no error; here it is one."""
    with pytest.raises(RuntimeError, match="its error was caught inside"):
        library.call(table.insert, "try:SELECT 1 / 0")

    assert (1, []) == (library.attempts, table.rows)


@some
def test_an_error_that_was_caught_inside_is_not_proved_either(library, table):
    """Failed transactions raise, also if the query for the receipt fails in them."""
    with pytest.raises(RuntimeError, match="its error was caught inside"):
        library.call(table.insert, "try:SELECT 1 / 0", prove=True)

    assert (1, []) == (library.attempts, table.rows)
