"""The writes of one run to its store, and what it reads while it runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from redrive.app.app import App
from redrive.app.flows.calls import ChildCall, StepCall
from redrive.clock import Clock
from redrive.engine.records import Claim
from redrive.engine.runs import RunFlags, RunRecord, SignalRecord, StepKind, StepRecord, check_size, child_id
from redrive.engine.steps import NewStep, StepBatch, StepEnd, StepMark, StepsAnswer, StepsWritten
from redrive.errors import LeaseLost, StoreBusy, StoreFull, StoreOutcomeUnknown, StoreUnreachable
from redrive.runtime.runs.branches import IN_STEP, call_coroutine
from redrive.runtime.supervision import rest
from redrive.runtime.threads import outside_loop
from redrive.stores.operations.runs import calls, steps, waits
from redrive.stores.operations.runs.waits import RunNews
from redrive.stores.query import Operation

R = TypeVar("R")


@contextlib.contextmanager
def _unless_unreachable() -> Iterator[None]:
    """Suppress the errors of a store that is there."""
    try:
        yield
    except Exception as error:
        if isinstance(error, StoreUnreachable):
            raise


def _check_not_rolled_back(error: Exception) -> None:
    """Raise `StoreBusy` if the database has rolled a transaction back, as by a deadlock: class 40 of SQL."""
    if str(getattr(error, "sqlstate", None) or "").startswith("40"):
        raise StoreBusy(f"this transaction was rolled back by the database; it changed nothing ({error})") from error


class Recorder(Protocol):
    """What one pass of a run writes and reads.

    Attributes:
        before: the last row that it has seen recorded; None before the first one.
        gap: True if the database has lost such a row.
    """

    before: StepMark | None
    gap: bool

    async def record(
        self, ends: Sequence[StepEnd], values: bytes | None
    ) -> tuple[Sequence[StepRecord], RunFlags | None]:
        """Write rows and values, and return the rows as written; raise `LeaseLost` if another worker has the run."""

    async def arrived(self) -> RunNews | None:
        """Read what has arrived for the run, and what operators ask of it."""

    async def signals(self, name: str) -> Sequence[SignalRecord]:
        """Read the first unread signals of a name."""

    async def start_child(self, run: RunRecord, path: str, call: ChildCall) -> StepRecord:
        """Start a child run and write the row of its call in one transaction."""

    async def transacted(self, end: NewStep, call: StepCall) -> StepRecord | Exception:
        """Call the function of a step with a connection, and commit its writes with the row.

        Return the error of a function that has failed; what it has written is rolled back.
        """

    async def recorded(self, path: str) -> StepRecord | None:
        """Read the row of a step."""


class _RecordedBefore(Exception):
    """A row stands where a transaction was to write one: what it has written must not be committed."""


class StoreRecorder:
    """The writes of a run to the store of an app.

    Args:
        app: the app.
        claim: the claimed run.
        write: writes rows of running runs, with others in one transaction where it can.
        clock: for the rests between two tries.
        in_thread: runs a function in a thread; None calls it in the thread of the event loop.
    """

    def __init__(
        self,
        app: App,
        claim: Claim,
        write: Callable[[StepBatch], Awaitable[StepsWritten]],
        clock: Clock,
        *,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] | None,
    ) -> None:
        self._app = app
        self._claim = claim
        self._write = write
        self._clock = clock
        self._in_thread = in_thread
        self.before: StepMark | None = None
        self.gap: bool = False

    async def record(
        self, ends: Sequence[StepEnd], values: bytes | None
    ) -> tuple[Sequence[StepRecord], RunFlags | None]:
        """Write rows and values; a run that another transaction has locked is tried again."""
        batch, tries = StepBatch(self._claim.id, self._claim.lease_id, tuple(ends), values, self.before), 0
        while True:
            written = await self._write(batch)
            if written.answer is StepsAnswer.WRITTEN:
                if written.steps:
                    self._seen(written.steps[-1])
                return written.steps, written.flags
            if written.answer is not StepsAnswer.LATER:
                raise self._lost(written.answer)
            tries += 1
            await self._clock.asleep(rest(tries))

    def _seen(self, row: StepRecord) -> StepRecord:
        # A database loses commits from the last one back, so the last row that was seen stands for the others.
        self.before = row.path, row.at
        return row

    def _lost(self, answer: StepsAnswer) -> LeaseLost:
        self.gap = self.gap or answer is StepsAnswer.GAP
        why = "the database has lost a step of it" if self.gap else "another worker has the run"
        return LeaseLost(f"the attempt {self._claim.id}.{self._claim.lease_id} is over: {why}")

    async def arrived(self) -> RunNews | None:
        """Read what has arrived for the run."""
        news = await self._stored(lambda: waits.news([self._claim.id], now=self._app.now()))
        return news.get(self._claim.id)

    async def signals(self, name: str) -> Sequence[SignalRecord]:
        """Read the first unread signals of a name."""
        return await self._stored(lambda: waits.unread(self._claim.id, name))

    # Only for operations that can be repeated after a lost reply. A database that does not answer is no failure of the
    # run: an attempt that has lost its lease since is cancelled by its worker.
    async def _stored(self, operation: Callable[[], Operation[R]]) -> R:
        """Run an operation, again and again while the database is busy, full or unreachable."""
        tries = 0
        while True:
            try:
                return await self._app.store.arun(operation())
            except (StoreBusy, StoreFull, StoreOutcomeUnknown, StoreUnreachable):
                tries += 1
                await self._clock.asleep(rest(tries))

    async def start_child(self, run: RunRecord, path: str, call: ChildCall) -> StepRecord:
        """Start a child run and write the row of its call; a try after a lost reply starts no other one."""
        new = call.workflow.new_run(child_id(run, path), call.payload, (self._claim.id, path))
        end = NewStep(path, StepKind.CALL, call.workflow.name, digest=call.digest)
        lease, before = (self._claim.id, self._claim.lease_id), self.before
        try:
            row = await self._stored(lambda: calls.call(*lease, end, new, before=before, now=self._app.now()))
        except calls.StepGap:
            self.gap = True
            raise
        return self._seen(row)

    # ---------------------------------------------------------------- steps in the user's transaction

    # A commit without a known end is a failed try for the caller. The row of that decides: it is written after the end
    # of the transaction, and not in the place of another row.
    async def transacted(self, end: NewStep, call: StepCall) -> StepRecord | Exception:
        """Call the function of a step with a connection, and commit its writes with the row.

        If the reply to the commit was lost, the row shows if it took effect; raise `StoreOutcomeUnknown` if it does
        not. A transaction that another one has ended, by a deadlock or a lock that it holds for long, or whose server
        has gone, has changed nothing, and is repeated. Every other error of the function is returned as it is.
        """
        tries = 0
        while True:
            try:
                row = await self._tried(end, call)
            except (StoreBusy, StoreFull, StoreUnreachable):
                tries += 1
                await self._clock.asleep(rest(tries))
                continue
            except (StoreOutcomeUnknown, _RecordedBefore):
                found = await self.recorded(end.path)
                if found is None or found.lease_id != self._claim.lease_id:
                    raise
                row = found
            return row if isinstance(row, Exception) else self._seen(row)

    async def recorded(self, path: str) -> StepRecord | None:
        """Read the row of a step."""
        return await self._stored(lambda: calls.recorded(self._claim.id, path))

    async def _tried(self, end: NewStep, call: StepCall) -> StepRecord | Exception:
        if inspect.iscoroutinefunction(call.step.function):
            return await self._transacted(end, call)
        if self._in_thread is None:
            return outside_loop(lambda: self._transacted_here(end, call))
        row: StepRecord | Exception = await self._in_thread(lambda: self._transacted_here(end, call))
        return row

    # Returned, and not raised, is what the function raised in a transaction that stands, whatever the error: it may be
    # that of another store.
    async def _transacted(self, end: NewStep, call: StepCall) -> StepRecord | Exception:
        loan = await self._app.store.abegin()
        try:
            function = functools.partial(call.step.function, loan.connection, *call.args, **call.kwargs)
            # What it has written is rolled back.
            try:
                value = await call_coroutine(True, call.step.name, function)  # noqa: FBT003 - may be called again
            except Exception as error:
                with _unless_unreachable():
                    await loan.run(self._look(end.path))
                    await loan.rollback()
                    return error
                _check_not_rolled_back(error)
                raise
            row = self._checked(await loan.run(self._operation(end, call, value)))
        except BaseException:
            await loan.rollback()
            raise
        await loan.commit()
        return row

    def _transacted_here(self, end: NewStep, call: StepCall) -> StepRecord | Exception:
        loan = self._app.store.begin()
        token = IN_STEP.set(call.step.name)
        try:
            # In drain mode this is the thread of the body, which must not see what the function sets.
            try:
                value = copy_context().run(call.step.function, loan.connection, *call.args, **call.kwargs)
            except Exception as error:
                with _unless_unreachable():
                    loan.run(self._look(end.path))
                    loan.rollback()
                    return error
                _check_not_rolled_back(error)
                raise
            row = self._checked(loan.run(self._operation(end, call, value)))
        except BaseException:
            loan.rollback()
            raise
        finally:
            IN_STEP.reset(token)
        loan.commit()
        return row

    # A function that fails because its connection was lost fails with an error of the database library. Then an
    # operation in the same transaction shows that no server is there.
    def _look(self, path: str) -> Operation[StepRecord | None]:
        return calls.recorded(self._claim.id, path)

    # The transaction has called a function by then: it waits for an operator who has locked the run, and goes on.
    def _operation(self, end: NewStep, call: StepCall, value: object) -> Operation[StepsWritten]:
        raw = call.step.returns.check(value)
        check_size(f"step {call.step.name}", raw, self._app.max_payload)
        batch = StepBatch(self._claim.id, self._claim.lease_id, (replace(end, result=raw),), before=self.before)
        return steps.record_behind(batch, now=self._app.now())

    def _checked(self, answer: StepsWritten) -> StepRecord:
        if answer.answer is not StepsAnswer.WRITTEN:
            raise self._lost(answer.answer)
        if answer.flags is None:
            raise _RecordedBefore
        return answer.steps[0]
