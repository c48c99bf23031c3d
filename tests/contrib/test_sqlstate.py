"""The table of SQLSTATEs, and what is made of it."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest
from sqlalchemy import exc

from redrive.contrib import asyncpg as on_asyncpg
from redrive.contrib import sqlalchemy as on_sqlalchemy
from redrive.contrib.psycopg import failure_of as read
from redrive.contrib.sqlstate import CONDITIONS, Fate, classifier, condition_of, connect_code, failure_of, fate_of, mark
from redrive.errors import OutcomeUnknown, RetryAfter
from redrive.policy import Policy, Stage
from tests.architecture.source import ROOT

NAMES = {code: error.__name__ for code, error in psycopg.errors._sqlcodes.items()}
NOT_SENT, IN_FLIGHT, ANSWERED = Stage.NOT_SENT, Stage.IN_FLIGHT, Stage.ANSWERED


@pytest.mark.parametrize("row", [row for row in CONDITIONS.values() if row.code in NAMES], ids=lambda row: row.code)
def test_a_reason_is_the_name_of_the_condition(row):
    """Reasons are the names of appendix A, which psycopg's classes have too."""
    assert NAMES[row.code].lower() == row.reason.replace("_", "").lower()


@pytest.mark.parametrize(
    ("code", "transient", "stage", "answers"),
    [
        ("40001", True, ANSWERED, True),
        ("40P01", True, ANSWERED, True),
        ("55P03", True, ANSWERED, True),
        ("57014", True, ANSWERED, True),
        ("23505", False, ANSWERED, True),
        ("23999", False, ANSWERED, True),
        ("42601", False, ANSWERED, True),
        ("XX000", False, ANSWERED, True),
        ("40003", True, IN_FLIGHT, False),
        ("08006", True, IN_FLIGHT, False),
        ("08007", True, IN_FLIGHT, False),
        ("08999", True, IN_FLIGHT, False),
        ("57P01", True, IN_FLIGHT, False),
        ("57P02", True, IN_FLIGHT, False),
        ("25P03", True, ANSWERED, False),
        ("25006", True, ANSWERED, False),
        ("08001", True, NOT_SENT, False),
        ("53300", True, NOT_SENT, False),
        ("57P03", True, NOT_SENT, False),
        ("28P01", False, NOT_SENT, False),
    ],
)
def test_a_code_has_the_stage_of_its_statement(code, transient, stage, answers):
    """ERROR is an answer; the end of a session is none, also as the answer to a COMMIT."""
    row = condition_of(code)

    assert (transient, stage, answers) == (row.transient, row.stage, row.answers)


@pytest.mark.parametrize(("code", "reason"), [("23999", "INTEGRITY_CONSTRAINT_VIOLATION"), ("XX000", "SQLSTATE_XX000")])
def test_a_code_that_is_not_listed_has_a_reason(code, reason):
    """Unlisted codes have the reason of their class, or one with their number."""
    assert reason == condition_of(code).reason


@pytest.mark.parametrize(
    ("fate", "stage"),
    [(None, IN_FLIGHT), (Fate.UNOPENED, NOT_SENT), (Fate.ROLLED_BACK, ANSWERED), (Fate.UNKNOWN, IN_FLIGHT)],
)
def test_the_state_of_the_transaction_precedes_the_code(fate, stage):
    """Lost connections prove nothing, unless COMMIT was not sent."""
    error = psycopg.OperationalError("server closed the connection")
    if fate is not None:
        mark(error, fate)

    failure = read(error)

    assert ("CONNECTION_FAILURE", stage, None) == (failure.reason, failure.stage, failure.candidate)


@pytest.mark.parametrize(
    ("fate", "stage"), [(Fate.UNOPENED, NOT_SENT), (Fate.ROLLED_BACK, ANSWERED), (Fate.UNKNOWN, IN_FLIGHT)]
)
def test_an_attempt_that_was_cut_off_counts_by_its_transaction(fate, stage):
    """Timeouts count by the mark on the cancellation that caused them."""
    cancelled = BaseException()
    mark(cancelled, fate)
    overrun = TimeoutError("attempt 1 took longer than 1s")
    overrun.__cause__ = cancelled

    failure = failure_of(overrun, None)

    assert ("TIMEOUT", stage) == (failure.reason, failure.stage)


def test_an_unknown_outcome_of_an_inner_attempt_is_kept():
    """Rolling back the outer transaction keeps the mark of the inner one."""
    error = TimeoutError()
    mark(error, Fate.UNKNOWN)
    mark(error, Fate.ROLLED_BACK)

    assert Fate.UNKNOWN is fate_of(error)


def test_other_timeouts_are_not_the_databases():
    """Timeouts that the function has raised are retried if the policy names them."""
    error = TimeoutError()
    mark(error, Fate.ROLLED_BACK)

    assert failure_of(error, None) is None
    assert classifier(read, ["builtins.TimeoutError"])(error).candidate


def test_a_connection_that_could_not_be_made_has_stored_nothing():
    """For a refused connection asyncpg raises the operating system's error; for a slow one a timeout."""
    for error in (ConnectionRefusedError(), TimeoutError()):
        mark(error, Fate.UNOPENED)

        assert NOT_SENT is failure_of(error, None).stage


def test_an_answer_to_begin_is_an_answer():
    """A server that refuses to begin has answered; one that refuses the session has been sent nothing."""
    refused, rejected = psycopg.errors.InsufficientPrivilege(), psycopg.errors.InvalidPassword()
    for error in (refused, rejected):
        mark(error, Fate.UNOPENED)

    assert (ANSWERED, NOT_SENT) == (read(refused).stage, read(rejected).stage)


def test_an_unknown_outcome_is_in_flight():
    """Only an idempotent policy repeats it. That of another system is none of the database's business."""
    error = OutcomeUnknown()
    mark(error, Fate.UNKNOWN)

    assert IN_FLIGHT is read(error).stage
    assert read(OutcomeUnknown()) is None


def test_other_errors_are_not_described_as_database_errors():
    """It is none of the policy's business."""
    assert read(KeyError()) is None
    assert read(psycopg.InterfaceError()) is None


@pytest.mark.parametrize(
    ("describe", "error", "reason"),
    [
        (on_asyncpg.failure_of, asyncpg.InterfaceError("connection is closed"), "CONNECTION_FAILURE"),
        (on_asyncpg.failure_of, asyncpg.DeadlockDetectedError(), "DEADLOCK_DETECTED"),
        (on_asyncpg.failure_of, asyncpg.InterfaceError("wrong argument"), None),
        (on_sqlalchemy.failure_of, exc.TimeoutError(), "SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION"),
        (on_sqlalchemy.failure_of, exc.InvalidRequestError(), None),
        (on_sqlalchemy.failure_of, asyncpg.CannotConnectNowError(), "CANNOT_CONNECT_NOW"),
        (on_sqlalchemy.failure_of, asyncpg.InterfaceError("wrong argument"), None),
        (read, psycopg.errors.ConnectionTimeout(), "SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION"),
    ],
)
def test_errors_without_a_code_are_read_too(describe, error, reason):
    """Classify the errors of libraries that have no code."""
    failure = describe(error)

    assert reason == (None if failure is None else failure.reason)


def test_the_drivers_error_below_sqlalchemys_is_named():
    """Policies may name either error."""
    error = exc.IntegrityError("INSERT", {}, psycopg.errors.UniqueViolation())

    types = on_sqlalchemy.failure_of(error).types

    assert "sqlalchemy.exc.IntegrityError" == types[0]
    assert "psycopg.errors.UniqueViolation" in types


def test_an_exception_that_refuses_attributes_is_marked():
    """The outcome of a transaction is stored also on an exception that refuses attributes."""

    class Refusing(BaseException):
        def __setattr__(self, name, value):
            raise AttributeError(name)

    error = Refusing()
    mark(error, Fate.ROLLED_BACK)

    assert fate_of(error) is Fate.ROLLED_BACK


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('FATAL:  password authentication failed for user "x"', "08004"),
        ("FATAL:  the database system is starting up", "08001"),
        ("FATAL:  sorry, too many clients already", "08001"),
        ("Connection refused", "08001"),
    ],
)
def test_a_refusal_is_read_from_its_text(text, code):
    """Before there is a session libpq gives no code."""
    assert code == connect_code(text)


NAMED = [
    (None, psycopg.errors.SerializationFailure(), True),
    (["SERIALIZATION_FAILURE"], psycopg.errors.SerializationFailure(), True),
    (["psycopg.OperationalError"], psycopg.errors.SerializationFailure(), True),
    (["DEADLOCK_DETECTED"], psycopg.errors.SerializationFailure(), False),
    (None, psycopg.errors.UniqueViolation(), False),
    (["psycopg.Error"], psycopg.errors.UniqueViolation(), False),
    (["UNIQUE_VIOLATION"], psycopg.errors.UniqueViolation(), True),
    (["psycopg.errors.UniqueViolation"], psycopg.errors.UniqueViolation(), True),
    (["builtins.KeyError"], KeyError(), True),
    (["builtins.KeyError"], ValueError(), False),
    (["builtins.KeyError"], RetryAfter(1), True),
]


@pytest.mark.parametrize(("names", "error", "candidate"), NAMED)
def test_named_groups_contain_transient_conditions(names, error, candidate):
    """Permanent failures are retried only if they are named exactly."""
    failure = classifier(read, names)(error)

    assert candidate is (Policy(on=lambda _: failure).classify(error).candidate is True)


def test_the_table_is_documented():
    """Documentation shows each condition."""
    page = (ROOT / "docs" / "reference" / "databases.md").read_text()
    fates = {NOT_SENT: "not sent", IN_FLIGHT: "carried out or not", ANSWERED: "undone"}
    expected = [
        f"| {row.code:x<5} | `{row.reason}` | {'yes' if row.transient else ''} | {fates[row.stage]} "
        f"| {'replaced' if row.ends_session else 'kept'} |"
        for row in CONDITIONS.values()
    ]

    assert expected == [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
