"""What PostgreSQL's error codes mean for a retry, as one table: `ROWS`.

Answers: may a statement, or the transaction around it, be tried again after this SQLSTATE, and is it known that nothing
was stored? May import: `redrive.policy` and `redrive.errors`. Must never: know a library; `redrive.contrib.psycopg`,
`redrive.contrib.asyncpg` and `redrive.contrib.sqlalchemy` find the code in their errors and ask here.

Three facts about PostgreSQL carry the table:

* **An ERROR is an answer.** The server has undone the statement before it says so, and the transaction is as good as
  rolled back. So a code alone proves that nothing was stored, also as the answer to a COMMIT: whatever can fail in it
  (a deferred constraint, the serialisability check) does so before the commit is written.
* **The end of a session is none.** Codes of the classes 08 and 57P come when the connection ends, and that can be
  after the commit was written and before it was told. Alone they prove nothing (``leaves``).
* **Before COMMIT was sent nothing is stored**, whatever happens to the connection. Who knows that it was not sent says
  so on the exception (`marked`): `redrive.contrib.transactions` does. Then every failure is as good as answered.

What is transient follows PostgreSQL's documentation: 13.5 (serialisation failures and deadlocks: repeat the whole
transaction), and appendix A for the rest: connections, shutdowns, a server with too many sessions, locks that were not
to be had, statements that took too long, a server that is a standby now. Everything else would fail again, and is
retried only where the policy names exactly it: ``on=["UNIQUE_VIOLATION"]`` is right where another transaction was
quicker to insert a row that this one would find the next time (13.5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from redrive.errors import OutcomeUnknown
from redrive.policy import Failure, Stage
from redrive.policy.classify import Classifier, matches, names_of

__all__ = [
    "FAILED_BEFORE",
    "ROWS",
    "Fate",
    "Read",
    "Row",
    "failure_of",
    "fate_of",
    "marked",
    "naming",
    "refusal",
    "row_of",
]

FAILED_BEFORE = "25P02"
"""The code of every statement after one that has failed, until the transaction is rolled back."""


class Row(NamedTuple):
    """One SQLSTATE, or a class of them.

    Attributes:
        code: five characters, or the two of a class.
        reason: the name of the condition in appendix A, as a reason.
        transient: whether it may be different the next time.
        stage: how far a single statement got, outside of a transaction.
        leaves: whether the connection is of no use afterwards, so that another one has to be taken.
    """

    code: str
    reason: str
    transient: bool = False
    stage: Stage = Stage.ANSWERED
    leaves: bool = False

    @property
    def answers(self) -> bool:
        """Whether it proves that the statement, which may be a COMMIT, has stored nothing."""
        return self.stage is Stage.ANSWERED and not self.leaves


_SENT, _UNSENT = Stage.IN_FLIGHT, Stage.NOT_SENT

ROWS = MappingProxyType(
    {
        row.code: row
        for row in (
            Row("08", "CONNECTION_EXCEPTION", transient=True, stage=_SENT, leaves=True),
            Row("08001", "SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION", transient=True, stage=_UNSENT, leaves=True),
            Row("08004", "SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION", stage=_UNSENT, leaves=True),
            Row("08006", "CONNECTION_FAILURE", transient=True, stage=_SENT, leaves=True),
            Row("08007", "TRANSACTION_RESOLUTION_UNKNOWN", transient=True, stage=_SENT, leaves=True),
            Row("08P01", "PROTOCOL_VIOLATION", stage=_SENT, leaves=True),
            Row("22", "DATA_EXCEPTION"),
            Row("23", "INTEGRITY_CONSTRAINT_VIOLATION"),
            Row("23502", "NOT_NULL_VIOLATION"),
            Row("23503", "FOREIGN_KEY_VIOLATION"),
            Row("23505", "UNIQUE_VIOLATION"),
            Row("23514", "CHECK_VIOLATION"),
            Row("23P01", "EXCLUSION_VIOLATION"),
            Row("25006", "READ_ONLY_SQL_TRANSACTION", transient=True, leaves=True),
            Row(FAILED_BEFORE, "IN_FAILED_SQL_TRANSACTION"),
            Row("25P03", "IDLE_IN_TRANSACTION_SESSION_TIMEOUT", transient=True, leaves=True),
            Row("25P04", "TRANSACTION_TIMEOUT", transient=True, leaves=True),
            Row("28", "INVALID_AUTHORIZATION_SPECIFICATION", stage=_UNSENT, leaves=True),
            Row("3D000", "INVALID_CATALOG_NAME", stage=_UNSENT, leaves=True),
            Row("40", "TRANSACTION_ROLLBACK", transient=True),
            Row("40001", "SERIALIZATION_FAILURE", transient=True),
            Row("40002", "TRANSACTION_INTEGRITY_CONSTRAINT_VIOLATION"),
            Row("40003", "STATEMENT_COMPLETION_UNKNOWN", transient=True, stage=_SENT),
            Row("40P01", "DEADLOCK_DETECTED", transient=True),
            Row("42", "SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION"),
            Row("53", "INSUFFICIENT_RESOURCES"),
            Row("53200", "OUT_OF_MEMORY", transient=True),
            Row("53300", "TOO_MANY_CONNECTIONS", transient=True, stage=_UNSENT, leaves=True),
            Row("55P03", "LOCK_NOT_AVAILABLE", transient=True),
            Row("57014", "QUERY_CANCELED", transient=True),
            Row("57P01", "ADMIN_SHUTDOWN", transient=True, stage=_SENT, leaves=True),
            Row("57P02", "CRASH_SHUTDOWN", transient=True, stage=_SENT, leaves=True),
            Row("57P03", "CANNOT_CONNECT_NOW", transient=True, stage=_UNSENT, leaves=True),
            Row("57P04", "DATABASE_DROPPED", stage=_SENT, leaves=True),
            Row("57P05", "IDLE_SESSION_TIMEOUT", transient=True, stage=_SENT, leaves=True),
        )
    }
)
"""What is known of a code; of one that is not here its class decides, and of one without a class nothing is retried."""


def row_of(code: str) -> Row:
    """What is known of a SQLSTATE.

    Args:
        code: five characters.
    """
    row = ROWS.get(code) or ROWS.get(code[:2])
    return row or Row(code, f"SQLSTATE_{code.upper()}")


_AWAY = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "terminating")


def refusal(text: str) -> str:
    """The SQLSTATE of a connection that was not made: libpq tells only the text.

    Args:
        text: of the error.
    """
    # Words of an English server. In another language a wrong password counts as one that keeps being refused, too;
    # a server that starts up does then, as well, which is the careful side.
    return "08004" if "FATAL:" in text and not any(word in text for word in _AWAY) else "08001"


# ------------------------------------------------------------------------------------------------ what is known besides


class Fate(Enum):
    """What became of the transaction that an exception has ended."""

    UNOPENED = "unopened"
    """It was not begun."""
    ROLLED_BACK = "rolled back"
    """It was not committed, and will not be."""
    UNKNOWN = "unknown"
    """Its COMMIT was sent and not answered."""


_MARK = "__transaction__"


def marked(error: BaseException, fate: Fate) -> None:
    """Note on an exception what became of the transaction that it has ended.

    Args:
        error: what leaves the transaction's block.
        fate: what is known.
    """
    if getattr(error, _MARK, None) is Fate.UNKNOWN:
        return  # that of a transaction further in, which the rollback of this one does not undo
    with suppress(AttributeError):  # a class with slots; it counts as it would without us
        setattr(error, _MARK, fate)


def fate_of(error: BaseException) -> Fate | None:
    """What was noted on an exception, or on the cancellation of which redrive has made it (an ``attempt_timeout``)."""
    fate = getattr(error.__cause__ if _is_overrun(error) else error, _MARK, None)
    return fate if isinstance(fate, Fate) else None


def _is_overrun(error: BaseException) -> bool:
    """Whether it stands for an attempt that redrive has cut off inside a transaction."""
    return isinstance(error, TimeoutError) and hasattr(error.__cause__, _MARK)


# ------------------------------------------------------------------------------------------------------- for a policy

Read: TypeAlias = Callable[[BaseException], Failure | None]
"""A library's ``failure_of``."""


def failure_of(error: BaseException, code: str | None) -> Failure | None:
    """What an exception means for a retry.

    Args:
        error: what was raised.
        code: its SQLSTATE, or that of what has happened to the connection; None if it is no error of a database.

    Returns:
        None if it is no failure of a database. Otherwise the failure, which is no candidate if it would come again.
    """
    fate = fate_of(error)
    if isinstance(error, OutcomeUnknown) and fate is Fate.UNKNOWN:
        return Failure.of(error, reason="TRANSACTION_RESOLUTION_UNKNOWN", stage=_SENT)
    if _is_overrun(error):
        return Failure.of(error, reason="TIMEOUT", stage=_SENT if fate is Fate.UNKNOWN else Stage.ANSWERED)
    if code is None and isinstance(error, OSError) and fate is Fate.UNOPENED:
        code = "08001"  # asyncpg has no error of its own for a connection that could not be made
    if code is None:
        return None
    row = row_of(code)
    failure = Failure.of(error, reason=row.reason, stage=row.stage)
    if fate is not None:
        failure = failure._replace(stage=_SENT if fate is Fate.UNKNOWN else Stage.ANSWERED)
    if row.code == FAILED_BEFORE:
        why = "its transaction has failed before, and accepts nothing more: put the retry around the whole transaction"
        failure = failure._replace(permanent=why)
    return failure if row.transient else failure._replace(candidate=False)


def naming(read: Read, on: Iterable[str] | None) -> Classifier:
    """A classifier for what a policy names, in terms of what a library's errors mean.

    Args:
        read: a library's ``failure_of``.
        on: exception types, their names, and reasons, as a policy has them; None: whatever is transient.

    Returns:
        It has retried what is named and transient; of what would come again, what is named exactly, by its reason or
        its own class; and of what is no failure of a database what is named.
    """
    names = None if on is None else frozenset(names_of(on, "on"))

    def classify(error: BaseException) -> Failure | None:
        failure = read(error)
        if names is None:
            return failure
        if failure is None:
            plain = Failure.of(error)
            return plain if plain.candidate is not None else plain._replace(candidate=matches(names, "all", plain))
        if failure.candidate is False:
            return failure._replace(candidate=failure.reason in names or failure.types[0] in names)
        return failure._replace(candidate=matches(names, "all", failure))

    return classify
