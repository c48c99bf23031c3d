"""The meaning of PostgreSQL's error codes for a retry, as one table: `CONDITIONS`.

Three facts about PostgreSQL are the basis of the table:

* **An ERROR is an answer.** The server has rolled back the statement before it sends the error, and the transaction can
  only be rolled back. So a code alone proves that nothing was stored, also as the answer to a COMMIT: every check that
  can fail in it (a deferred constraint, the serialisability check) runs before the commit is written.
* **The end of a session is no answer.** Codes of the classes 08 and 57P come when the connection ends, which can be
  after the commit was written and before it was reported. Alone they prove nothing (``ends_session``).
* **Before COMMIT was sent nothing is stored**, also if the connection is lost. Code that has not sent it
  marks the exception (`mark`), as `redrive.contrib.transactions` does. Then every failure counts as answered, or as not
  sent if there was no session in which to begin (`Fate.UNOPENED`): a database that is down has not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from redrive.errors import OutcomeUnknown
from redrive.errors.foreign import attribute, cause_of, is_a, set_attribute
from redrive.policy import Failure, Stage
from redrive.policy.classify import Classifier, matches, names_of
from redrive.policy.failure import Lasting
from redrive.policy.known import describe

__all__ = [
    "CONDITIONS",
    "FAILED_BEFORE",
    "Condition",
    "FailureReader",
    "Fate",
    "classifier",
    "condition_of",
    "connect_code",
    "failure_of",
    "fate_of",
    "mark",
]

#: The code of every statement after a failed one, until the transaction is rolled back.
FAILED_BEFORE = "25P02"


class Condition(NamedTuple):
    """A SQLSTATE, or a class of them."""

    #: Five characters, or the two of a class.
    code: str
    #: The name of the condition in appendix A, used as a reason.
    reason: str
    #: True if the next attempt may succeed.
    transient: bool = False
    #: How far a single statement got, outside of a transaction.
    stage: Stage = Stage.ANSWERED
    #: True if the connection cannot be used afterwards.
    ends_session: bool = False

    @property
    def answers(self) -> bool:
        """Return True if it proves that the statement, which may be a COMMIT, has stored nothing."""
        return self.stage is Stage.ANSWERED and not self.ends_session


_SENT, _UNSENT = Stage.IN_FLIGHT, Stage.NOT_SENT

_CONDITIONS = (
    Condition("08", "CONNECTION_EXCEPTION", transient=True, stage=_SENT, ends_session=True),
    Condition("08001", "SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION", transient=True, stage=_UNSENT, ends_session=True),
    Condition("08004", "SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION", stage=_UNSENT, ends_session=True),
    Condition("08006", "CONNECTION_FAILURE", transient=True, stage=_SENT, ends_session=True),
    Condition("08007", "TRANSACTION_RESOLUTION_UNKNOWN", transient=True, stage=_SENT, ends_session=True),
    Condition("08P01", "PROTOCOL_VIOLATION", stage=_SENT, ends_session=True),
    Condition("22", "DATA_EXCEPTION"),
    Condition("23", "INTEGRITY_CONSTRAINT_VIOLATION"),
    Condition("23502", "NOT_NULL_VIOLATION"),
    Condition("23503", "FOREIGN_KEY_VIOLATION"),
    Condition("23505", "UNIQUE_VIOLATION"),
    Condition("23514", "CHECK_VIOLATION"),
    Condition("23P01", "EXCLUSION_VIOLATION"),
    Condition("25006", "READ_ONLY_SQL_TRANSACTION", transient=True, ends_session=True),
    Condition(FAILED_BEFORE, "IN_FAILED_SQL_TRANSACTION"),
    Condition("25P03", "IDLE_IN_TRANSACTION_SESSION_TIMEOUT", transient=True, ends_session=True),
    Condition("25P04", "TRANSACTION_TIMEOUT", transient=True, ends_session=True),
    Condition("28", "INVALID_AUTHORIZATION_SPECIFICATION", stage=_UNSENT, ends_session=True),
    Condition("3D000", "INVALID_CATALOG_NAME", stage=_UNSENT, ends_session=True),
    Condition("40", "TRANSACTION_ROLLBACK", transient=True),
    Condition("40001", "SERIALIZATION_FAILURE", transient=True),
    Condition("40002", "TRANSACTION_INTEGRITY_CONSTRAINT_VIOLATION"),
    Condition("40003", "STATEMENT_COMPLETION_UNKNOWN", transient=True, stage=_SENT),
    Condition("40P01", "DEADLOCK_DETECTED", transient=True),
    Condition("42", "SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION"),
    Condition("53", "INSUFFICIENT_RESOURCES"),
    Condition("53200", "OUT_OF_MEMORY", transient=True),
    Condition("53300", "TOO_MANY_CONNECTIONS", transient=True, stage=_UNSENT, ends_session=True),
    Condition("55P03", "LOCK_NOT_AVAILABLE", transient=True),
    Condition("57014", "QUERY_CANCELED", transient=True),
    Condition("57P01", "ADMIN_SHUTDOWN", transient=True, stage=_SENT, ends_session=True),
    Condition("57P02", "CRASH_SHUTDOWN", transient=True, stage=_SENT, ends_session=True),
    Condition("57P03", "CANNOT_CONNECT_NOW", transient=True, stage=_UNSENT, ends_session=True),
    Condition("57P04", "DATABASE_DROPPED", stage=_SENT, ends_session=True),
    Condition("57P05", "IDLE_SESSION_TIMEOUT", transient=True, stage=_SENT, ends_session=True),
)

#: The conditions by code. A code that is not here has the condition of its class; without a class it is not retried.
CONDITIONS = MappingProxyType({row.code: row for row in _CONDITIONS})


def condition_of(code: str) -> Condition:
    """Return the condition of a SQLSTATE of five characters."""
    row = CONDITIONS.get(code) or CONDITIONS.get(code[:2])
    return row or Condition(code, f"SQLSTATE_{code.upper()}")


_AWAY = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "terminating")


def connect_code(text: str) -> str:
    """Return the SQLSTATE for the text of a connection error: libpq gives no code."""
    # The words of an English server. In another language every refusal counts as permanent: also that of a server which
    # starts up, which is the safe side.
    return "08004" if "FATAL:" in text and not any(word in text for word in _AWAY) else "08001"


class Fate(Enum):
    """The outcome of the transaction that an exception has ended."""

    UNOPENED = "unopened"
    """It was not begun."""
    ROLLED_BACK = "rolled back"
    """It was not committed and cannot be any more."""
    UNKNOWN = "unknown"
    """Its COMMIT was sent and not answered."""


# How far a transaction got that an exception has ended.
_STAGES = {Fate.UNOPENED: _UNSENT, Fate.ROLLED_BACK: Stage.ANSWERED, Fate.UNKNOWN: _SENT}
_MARK = "__transaction__"


def mark(error: BaseException, fate: Fate) -> None:
    """Store the outcome of a transaction on the exception that has ended it."""
    if attribute(error, _MARK) is Fate.UNKNOWN:
        # Set by an inner transaction, which the rollback of this one does not undo.
        return
    set_attribute(error, _MARK, fate)


def fate_of(error: BaseException) -> Fate | None:
    """Return the outcome stored on an exception, or on the cancellation that caused an ``attempt_timeout``."""
    fate = attribute(cause_of(error) if _is_overrun(error) else error, _MARK)
    return fate if isinstance(fate, Fate) else None


def _is_overrun(error: BaseException) -> bool:
    """Return True if redrive has cancelled an attempt inside a transaction."""
    return is_a(error, TimeoutError) and attribute(cause_of(error), _MARK) is not None


FailureReader: TypeAlias = Callable[[BaseException], Failure | None]
"""A library's ``failure_of``."""


def failure_of(error: BaseException, code: str | None) -> Failure | None:
    """Return the failure of an exception with an SQLSTATE; None if it is no failure of a database.

    The code may also describe the state of the connection. A failure that would occur again is lasting.
    """
    fate = fate_of(error)
    if is_a(error, OutcomeUnknown) and fate is Fate.UNKNOWN:
        return Failure.of(error, reason="TRANSACTION_RESOLUTION_UNKNOWN", stage=_SENT)
    if _is_overrun(error):
        return Failure.of(error, reason="TIMEOUT", stage=_STAGES[fate or Fate.ROLLED_BACK])
    if code is None and is_a(error, OSError) and fate is Fate.UNOPENED:
        # Asyncpg raises OSError for a connection that could not be opened.
        code = "08001"
    if code is None:
        return None
    row = condition_of(code)
    failure = Failure.of(error, reason=row.reason, stage=row.stage)
    # What the server answers to BEGIN is an answer; without a session nothing was sent.
    if fate is not None and not (fate is Fate.UNOPENED and row.stage is Stage.ANSWERED):
        failure = failure._replace(stage=_STAGES[fate])
    if row.code == FAILED_BEFORE:
        why = "its transaction has failed before, and accepts nothing: put the retry around the whole transaction"
        failure = failure._replace(permanent=why)
    return failure if row.transient else failure._replace(lasting=Lasting(stage=failure.stage))


def classifier(read: FailureReader, on: Iterable[str] | None) -> Classifier:
    """Return a classifier for the names in a policy's ``on``.

    It retries named transient failures; other database failures that are named exactly, by their reason or their own
    class; and named exceptions that are no database failures. With ``on=None`` it retries all transient failures.
    """
    names = None if on is None else frozenset(names_of(on, "on"))

    def classify(error: BaseException) -> Failure | None:
        failure = read(error)
        if names is None:
            return failure
        if failure is None:
            plain = describe(error)
            return plain if plain.candidate is not None else plain._replace(candidate=matches(names, "all", plain))
        if failure.lasting is not None:
            return failure._replace(candidate=failure.reason in names or failure.types[0] in names)
        return failure._replace(candidate=matches(names, "all", failure))

    return classify
