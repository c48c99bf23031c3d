"""One transaction, from its connection to its end: the drawing at the top of `redrive.contrib.transactions`."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from redrive.contrib.sqlstate import Fate, marked, row_of
from redrive.contrib.transactions.adapter import Link, Steps, adrive, drive
from redrive.contrib.transactions.commit_status import ABORTED, COMMITTED, QUESTION, Receipt, inquire
from redrive.contrib.transactions.deadline import room
from redrive.errors import OutcomeUnknown
from redrive.policy import Stage

__all__ = ["LEVELS", "TransactionBlock"]

C = TypeVar("C")

LEVELS = ("read committed", "repeatable read", "serializable")
"""Isolation levels, as ``isolation=`` takes them."""

_LIMIT = (
    "SELECT set_config('statement_timeout', CAST(CAST(LEAST(CAST(CAST({value} AS text) AS bigint), "
    "NULLIF(EXTRACT(EPOCH FROM CAST(current_setting('statement_timeout') AS interval)) * 1000, 0)) "
    "AS bigint) AS text), true)"
)  # milliseconds; 0 is no limit, and a lower one stays


class TransactionBlock(Generic[C]):
    """One transaction, as a block; enter it once, with ``with`` or ``async with`` as its library does.

    Args:
        link: to the database.
        prove: whether the fate of a lost COMMIT is asked after.
        isolation: one of `LEVELS`; None leaves the connection's own.

    Raises:
        TypeError: a proof is wanted, and there is no way to another connection.
        ValueError: there is no such isolation level.
    """

    def __init__(self, link: Link, *, prove: bool = False, isolation: str | None = None) -> None:
        if prove and not link.renewable:
            raise TypeError("prove=True asks on another connection: give a pool, or a function that connects")
        if isolation is not None and isolation.lower() not in LEVELS:
            raise ValueError(f"isolation={isolation!r}: it is one of {', '.join(LEVELS)}")
        self._link = link
        self._prove = prove
        self._isolation = isolation
        self._is_async = False
        self._entered = False

    def __enter__(self) -> C:
        given: C = drive(self._open())
        return given

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool | None:
        return drive(self._end(error)) or None

    async def __aenter__(self) -> C:
        self._is_async = True
        given: C = await adrive(self._open())
        return given

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool | None:
        return await adrive(self._end(error)) or None

    # ------------------------------------------------------------------------------------------------ the conversation

    def _open(self) -> Steps[Any]:
        if self._entered:
            raise RuntimeError("this transaction has been entered before; each attempt needs a new one")
        self._entered = True
        for _ in range(self._link.spares):
            try:
                return (yield from self._begin())
            except Exception as error:
                if not _was_lost(self._link, error):
                    raise
                self._link = self._link.another()
        return (yield from self._begin())

    def _begin(self) -> Steps[Any]:
        link = self._link
        try:
            given = yield from link.open()
            yield from link.begin(self._isolation)
            left = room()
            if left is not None:
                yield from link.ask(_LIMIT, str(max(1, int(left * 1000))))
        except BaseException as error:
            marked(error, Fate.UNOPENED)
            yield from self._release(usable=False)
            raise
        return given

    def _end(self, error: BaseException | None) -> Steps[bool]:
        if error is not None:
            return (yield from self._undo(error))
        try:
            row = yield from self._link.ready(QUESTION if self._prove else None)
        except BaseException as late:
            yield from self._undo(late)
            raise
        yield from self._commit(Receipt(*row) if row else None)
        return False

    def _undo(self, error: BaseException) -> Steps[bool]:
        """Roll back, and note it; whether the error was only meant to ask for that."""
        marked(error, Fate.ROLLED_BACK)
        link = self._link
        code = link.code_of(error)
        usable = isinstance(error, Exception) and not (code is not None and row_of(code).leaves)
        asked = False
        if usable:
            try:
                asked = yield from link.rollback(error)
            except Exception:  # noqa: BLE001 - the server rolls back by itself when the session ends
                usable = False
            except BaseException:
                yield from self._release(usable=False)
                raise
        yield from self._release(usable=usable)
        return asked

    def _release(self, *, usable: bool) -> Steps[None]:
        """Give the connection back. Where that fails it is lost, but what became of the transaction is known."""
        with suppress(Exception):
            yield from self._link.close(usable=usable)

    def _commit(self, receipt: Receipt | None) -> Steps[None]:
        link = self._link
        try:
            yield from link.commit()
        except Exception as error:
            code = link.code_of(error)
            if code is not None and row_of(code).answers:
                yield from self._undo(error)
                raise
            yield from self._release(usable=False)
            yield from self._resolve(error, receipt)
        except BaseException as error:
            marked(error, Fate.UNKNOWN)
            yield from self._release(usable=False)
            raise
        else:
            yield from self._release(usable=True)

    def _resolve(self, error: Exception, receipt: Receipt | None) -> Steps[None]:
        """Find out what became of a COMMIT without an answer; it returns if it was carried out.

        Raises:
            Exception: the error, if it was not.
            OutcomeUnknown: nobody knows.
        """
        status = None if receipt is None else (yield from inquire(self._link, receipt, is_async=self._is_async))
        if status == COMMITTED:
            return
        if status == ABORTED:
            marked(error, Fate.ROLLED_BACK)
            raise error
        unknown = OutcomeUnknown(
            "the connection was lost during COMMIT, and nobody knows whether the transaction was committed: look what "
            f"is there before you repeat it ({_first_line(error)})"
        )
        marked(unknown, Fate.UNKNOWN)
        raise unknown from error


def _was_lost(link: Link, error: Exception) -> bool:
    """Whether a connection was there and is of no use, as one that a pool has kept too long."""
    code = link.code_of(error)
    return code is not None and row_of(code).leaves and row_of(code).stage is not Stage.NOT_SENT


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
