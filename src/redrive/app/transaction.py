"""A transaction that commits the handler's writes and the end of its attempt together, or neither.

An attempt that has lost its lease cannot commit, and a committed attempt is never repeated. This is the only way to an
effect exactly once; effects elsewhere take place at least once.

The block ends the attempt. ``ctx.set_result()`` sets the result inside it; another return value of the handler is
logged as an error, because it comes too late to be stored.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from redrive.app.attempt_handle import AttemptHandle
from redrive.engine.outcome import Succeeded
from redrive.errors import ConfigurationError
from redrive.retrying import rng
from redrive.stores.operations import attempts, leases
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.query import Operation
from redrive.stores.transaction import AsyncStoreTransaction, StoreTransaction


class Transaction:
    """The block of ``ctx.transaction()``: ``with`` in a ``def`` handler, ``async with`` in a coroutine."""

    def __init__(self, link: AttemptHandle) -> None:
        self._link = link
        self._loan: StoreTransaction
        self._async_loan: AsyncStoreTransaction

    def __enter__(self) -> Any:  # noqa: ANN401 - the driver's own connection
        self._begin()
        self._loan = self._lend()
        try:
            self._check_current(self._loan.run(self._ask()))
        except BaseException:
            self._loan.rollback()
            raise
        self._link.lent = True
        return self._loan.connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self._end()
            else:
                self._loan.rollback()
        finally:
            self._link.lent = False

    def _end(self) -> None:
        try:
            self._check_settled(self._loan.run(self._settle()))
        except BaseException:
            self._loan.rollback()
            raise
        self._loan.commit()
        self._link.ended = True

    async def __aenter__(self) -> Any:  # noqa: ANN401 - the driver's own connection
        self._begin()
        self._async_loan = await self._alend()
        try:
            self._check_current(await self._async_loan.run(self._ask()))
        except BaseException:
            await self._async_loan.rollback()
            raise
        self._link.lent = True
        return self._async_loan.connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._aend()
            else:
                await self._async_loan.rollback()
        finally:
            self._link.lent = False

    async def _aend(self) -> None:
        try:
            self._check_settled(await self._async_loan.run(self._settle()))
        except BaseException:
            await self._async_loan.rollback()
            raise
        try:
            await self._async_loan.commit()
        except asyncio.CancelledError:
            # The loan finishes its commit before it raises this.
            self._link.ended = True
            raise
        self._link.ended = True

    def _lend(self) -> StoreTransaction:
        return self._link.store.begin()

    async def _alend(self) -> AsyncStoreTransaction:
        return await self._link.store.abegin()

    def _begin(self) -> None:
        if self._link.lent:
            raise ConfigurationError(
                "ctx.transaction() is open already: an attempt ends once, so it has one transaction at a time"
            )
        self._link.check()
        self._link.result = None

    def _ask(self) -> Operation[bool]:
        return attempts.is_current(self._link.claim.id, self._link.claim.lease_id)

    def _check_current(self, current: bool) -> None:  # noqa: FBT001 - a result of the store
        if not current:
            raise self._link.lost()

    def _settle(self) -> Operation[Settled]:
        self._link.check()
        ending = Ending(self._link.claim, Succeeded(self._link.result), rng.roll())
        return leases.settle([ending], now=self._link.now())

    def _check_settled(self, settled: Settled) -> None:
        if settled.lost:
            raise self._link.lost()
