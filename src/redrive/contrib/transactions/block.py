"""Transactions as blocks and as decorated functions; `redrive.contrib.transactions` has a drawing of their states."""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from redrive.contrib.sqlstate import FailureReader, Fate, classifier, condition_of, mark
from redrive.contrib.transactions import commit_status
from redrive.contrib.transactions.adapter import Adapter, Steps, adrive, drive
from redrive.errors import OutcomeUnknown
from redrive.errors.foreign import is_a
from redrive.policy import Policy, Stage
from redrive.policy.classify import refuse_coroutine
from redrive.retrying.decorator import retry

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

# The isolation levels that ``isolation=`` accepts.
LEVELS = ("read committed", "repeatable read", "serializable")

# Sets statement_timeout in milliseconds; 0 means no limit, and a lower limit is kept.
_LIMIT = (
    "SELECT set_config('statement_timeout', CAST(CAST(LEAST(CAST(CAST({value} AS text) AS bigint), "
    "NULLIF(EXTRACT(EPOCH FROM CAST(current_setting('statement_timeout') AS interval)) * 1000, 0)) "
    "AS bigint) AS text), true)"
)


class TransactionBlock(Generic[C]):
    """A context manager for one transaction; enter it once, with ``with`` or ``async with`` as the library does."""

    def __init__(self, adapter: Adapter, *, prove: bool = False, isolation: str | None = None) -> None:
        if prove and not adapter.renewable:
            raise TypeError("prove=True asks on another connection: give a pool, or a function that connects")
        if (prove or isolation is not None) and not adapter.is_postgres:
            raise TypeError(
                "prove= and isolation= are for PostgreSQL; the engine sets the isolation: "
                "create_engine(..., isolation_level=...)"
            )
        if isolation is not None and isolation.lower() not in LEVELS:
            raise ValueError(f"isolation={isolation!r}: it is one of {', '.join(LEVELS)}")
        self._adapter = adapter
        # True to find out the outcome of a COMMIT without an answer on another connection.
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

    def _open(self) -> Steps[Any]:
        if self._entered:
            raise RuntimeError("this transaction has been entered before; each attempt needs a new one")
        self._entered = True
        for _ in range(self._adapter.spares):
            try:
                return (yield from self._begin())
            except Exception as error:
                if not _was_lost(self._adapter, error):
                    raise
                self._adapter = self._adapter.another()
        return (yield from self._begin())

    def _begin(self) -> Steps[Any]:
        adapter = self._adapter
        try:
            given = yield from adapter.open()
            yield from adapter.begin(self._isolation)
            left = commit_status.seconds_left()
            if left is not None and adapter.is_postgres:
                yield from adapter.ask(_LIMIT, str(max(1, int(left * 1000))))
        except BaseException as error:
            mark(error, Fate.UNOPENED)
            yield from self._release(usable=False)
            raise
        return given

    def _end(self, error: BaseException | None) -> Steps[bool]:
        if error is not None:
            return (yield from self._undo(error))
        try:
            row = yield from self._adapter.ready(commit_status.QUESTION if self._prove else None)
        except BaseException as late:
            yield from self._undo(late)
            raise
        yield from self._commit(commit_status.Receipt(*row) if row else None)
        return False

    def _undo(self, error: BaseException) -> Steps[bool]:
        """Roll back, and mark the error; return True if the error only asked for that."""
        mark(error, Fate.ROLLED_BACK)
        adapter = self._adapter
        code = adapter.code_of(error)
        usable = is_a(error, Exception) and not (code is not None and condition_of(code).ends_session)
        asked = False
        if usable:
            try:
                asked = yield from adapter.rollback(error)
            except Exception:  # noqa: BLE001 - the server rolls back when the session ends
                usable = False
            except BaseException:
                yield from self._release(usable=False)
                raise
        yield from self._release(usable=usable, cancelled=is_a(error, CancelledError))
        return asked

    def _release(self, *, usable: bool, cancelled: bool = False) -> Steps[None]:
        # If that fails the connection is lost, but the outcome of the transaction is known.
        with suppress(Exception):
            yield from self._adapter.close(usable=usable, cancelled=cancelled)

    def _commit(self, receipt: commit_status.Receipt | None) -> Steps[None]:
        adapter = self._adapter
        try:
            yield from adapter.commit()
        except Exception as error:
            code = adapter.code_of(error)
            if code is not None and condition_of(code).answers:
                yield from self._undo(error)
                raise
            yield from self._release(usable=False)
            yield from self._resolve(error, receipt)
        except BaseException as error:
            mark(error, Fate.UNKNOWN)
            yield from self._release(usable=False)
            raise
        else:
            yield from self._release(usable=True)

    def _resolve(self, error: Exception, receipt: commit_status.Receipt | None) -> Steps[None]:
        """Find out the outcome of a COMMIT without an answer; return if it was carried out, otherwise raise.

        Raises:
            Exception: the error, if the transaction was rolled back.
            OutcomeUnknown: the outcome is unknown.
        """
        status = (
            None
            if receipt is None
            else (yield from commit_status.transaction_status(self._adapter, receipt, is_async=self._is_async))
        )
        if status == commit_status.COMMITTED:
            return
        if status == commit_status.ABORTED:
            mark(error, Fate.ROLLED_BACK)
            raise error
        unknown = OutcomeUnknown(
            "the connection was lost during COMMIT, and it is unknown whether the transaction was committed: look what "
            f"is there before you repeat it ({_first_line(error)})"
        )
        mark(unknown, Fate.UNKNOWN)
        raise unknown from error


def _was_lost(adapter: Adapter, error: Exception) -> bool:
    """Return True if an open connection has died, such as one that a pool has kept over a restart."""
    code = adapter.code_of(error)
    return code is not None and condition_of(code).ends_session and condition_of(code).stage is not Stage.NOT_SENT


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def decorator(
    adapter: Callable[[], Adapter], policy: Policy | str, read: FailureReader, *, prove: bool, isolation: str | None
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[P, T]]:
    """Return a decorator that runs each call of a function in a transaction and retries it."""
    if not adapter().renewable:
        raise TypeError(
            "transactional() takes a pool or a function that connects: a lost connection cannot be used again"
        )

    def enter() -> TransactionBlock[Any]:
        return TransactionBlock(adapter(), prove=prove, isolation=isolation)

    given = Policy.parse(policy) if isinstance(policy, str) else policy
    on = given.on
    if on is None or not callable(on):
        given = given.with_(on=classifier(read, on))

    def decorate(function: Callable[Concatenate[Any, P], T]) -> Callable[P, T]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator, which would go on after its transaction: return a list")
        attempt = (
            _async_attempt(enter, function) if inspect.iscoroutinefunction(function) else _attempt(enter, function)
        )
        functools.update_wrapper(attempt, function)
        signature = inspect.signature(function)
        attempt.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
        return cast("Callable[P, T]", retry(given)(attempt))

    return decorate


def _attempt(enter: Callable[[], TransactionBlock[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*args: object, **kwargs: object) -> object:
        with enter() as given:
            return refuse_coroutine(function(given, *args, **kwargs), function)

    return attempt


def _async_attempt(enter: Callable[[], TransactionBlock[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    async def attempt(*args: object, **kwargs: object) -> object:
        async with enter() as given:
            return await function(given, *args, **kwargs)

    return attempt
