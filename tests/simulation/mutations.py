"""Faults that are injected into the product, to prove that the simulation finds such faults.

A mutation changes a statement or a function while its block runs. The text that it replaces must exist: after a
change of the product its mutation fails until it is adapted."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from msgspec.structs import replace

import redrive.engine.anchor
import redrive.stores.operations.crons
import redrive.stores.operations.leases
from redrive.engine.origin import is_feeder
from redrive.engine.outcome import Lost, Released
from redrive.engine.settle import decide
from redrive.runtime import heartbeat
from redrive.runtime.attempts import Attempts
from redrive.runtime.dead_workers import Rescuer
from redrive.runtime.executor import Executor
from redrive.runtime.heartbeat import Heartbeat
from redrive.runtime.runs.recorder import StoreRecorder
from redrive.runtime.settler import Settler
from redrive.stores.drivers.sqlite.transactions import AsyncSQLiteTransaction, SQLiteTransactions
from redrive.stores.operations import workers
from redrive.stores.operations.runs import calls
from redrive.stores.operations.topics import feed
from redrive.stores.query import Operation
from redrive.stores.statements import loader

__all__ = ["MUTATIONS", "SETTLE"]

_BY_LEASES = "AND lease_id IN (SELECT value FROM json_each(:lease_ids))"


@contextlib.contextmanager
def _sql(*changes: tuple[str, str, str]) -> Iterator[None]:
    statements: Any = loader.statements("sqlite")
    with contextlib.ExitStack() as stack:
        for name, old, new in changes:
            assert old in statements[name], f"{name}.sql has no {old!r} any more: adapt the mutation"
            stack.enter_context(mock.patch.dict(statements, {name: statements[name].replace(old, new)}))
        yield


def _settle_without_lease() -> AbstractContextManager[None]:
    return _sql(
        ("settle", "AND lease_id = :lease_id AND state", "AND state"),
        ("settle_succeeded", _BY_LEASES, ""),
    )


def _progress_without_lease() -> AbstractContextManager[None]:
    return _sql(("progress_put", "AND lease_id = :lease_id", ""))


def _beat_of_the_dead() -> AbstractContextManager[None]:
    return _sql(*((name, "AND stopped_at IS NULL", "") for name in ("worker_beat", "heartbeat")))


def _limit_uncounted() -> AbstractContextManager[None]:
    return _sql(("queue_held", "slot = :queue", "slot = :queue AND 0"))


def _cancelled_uncounted() -> AbstractContextManager[None]:
    return _sql(("queue_held", "WHERE queue = :queue", "WHERE 0 AND queue = :queue"))


def _expiry_ignored() -> AbstractContextManager[None]:
    return _sql(("workers_bury", "expires_at <= :now", "heartbeat_at < :now"))


def _absence_unforgiven() -> AbstractContextManager[None]:
    return _sql(("workers_late", "expires_at + max(", "expires_at + 0 * max("))


def _clock_followed_at_once() -> AbstractContextManager[None]:
    return mock.patch.object(redrive.engine.anchor, "difference", return_value=0)


@contextlib.contextmanager
def _at_most_once_released() -> Iterator[None]:
    def deciding(claim: Any, outcome: Any, now: Any, sample: float) -> Any:
        if claim.policy.idempotent is False and isinstance(outcome, Lost):
            outcome = Released("mutated")
        return decide(claim, outcome, now, sample)

    with mock.patch.object(redrive.stores.operations.leases, "decide", deciding):
        yield


@contextlib.contextmanager
def _fired_again() -> Iterator[None]:
    """Keep the cron from moving on, and count earlier starts as new."""
    same = ("occurrence_put", "WHERE redrive_occurrences.decision <> 'started'", "WHERE 1")
    with _sql(("schedule_move", "next_at = :next_at", "next_at = next_at"), same):
        yield


@contextlib.contextmanager
def _unguarded() -> Iterator[None]:
    """Let the attempts continue although no heartbeat was written."""
    with mock.patch.object(Attempts, "expired", return_value=None):
        yield


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Let the heartbeat wait for its answer without limit, and disable the check of the lease."""
    with mock.patch.object(Heartbeat, "_patience", return_value=math.inf), _unguarded():
        yield


@contextlib.contextmanager
def _joined() -> Iterator[None]:
    """Let the heartbeat and the stop of the worker wait for the answer without limit."""
    with (
        mock.patch.object(Heartbeat, "_patience", return_value=math.inf),
        mock.patch.object(heartbeat, "LAST_WAIT", None),
    ):
        yield


@contextlib.contextmanager
def _any_cancellation() -> Iterator[None]:
    """Treat the cancellation of a handler by itself as one by the worker."""
    made = Executor.__init__

    def init(executor: Executor, *args: Any, **kwargs: Any) -> None:
        made(executor, *args, **kwargs | {"cut_off": lambda _: True})

    with mock.patch.object(Executor, "__init__", init):
        yield


def _no_turn_before() -> AbstractContextManager[None]:
    return mock.patch.object(feed, "_lacks_turn", return_value=False)


def _any_birth() -> AbstractContextManager[None]:
    return _sql(("heartbeat", "AND birth IS :birth", ""))


def _row_before_unnamed() -> AbstractContextManager[None]:
    """Let a run forget the last row that it has seen recorded."""
    return mock.patch.object(StoreRecorder, "_seen", lambda _, row: row)


@contextlib.contextmanager
def _call_without_row() -> Iterator[None]:
    """Let only the call of a child run not name the row before it."""
    call = calls.call
    with mock.patch.object(calls, "call", lambda *args, **kwargs: call(*args, **kwargs | {"before": None})):
        yield


@contextlib.contextmanager
def _plain_ids() -> Iterator[None]:
    """Let a worker that registers again have the next number as its id, without random bits."""
    renew = workers.renew
    with mock.patch.object(workers, "renew", lambda *args, **kwargs: renew(*args, **kwargs | {"salt": None})):
        yield


@contextlib.contextmanager
def _lost_delivery_done() -> Iterator[None]:
    """Let a turn count a delivery as done whose transaction is lost."""
    write = feed._write_rest

    def writing(lease: Any, shard: Any, progress: Any, now: Any) -> Any:
        try:
            return (yield from write(lease, shard, progress, now))
        except feed.DeliveryLost:
            return (yield from write(lease, shard, replace(progress, done=(), healthy=False), now))

    with mock.patch.object(feed, "_write_rest", writing):
        yield


@contextlib.contextmanager
def _attempts_kept() -> Iterator[None]:
    """Let all attempts but feeders go on although another server has taken over."""
    drop, lost = Attempts.drop, Attempts.lost

    def dropping(attempts: Attempts) -> tuple[frozenset[int], dict[int, int]]:
        going_on = {lease: claim.id for lease, claim in attempts._open.items() if not is_feeder(claim.origin)}
        with mock.patch.object(Attempts, "lost", lambda self, leases: lost(self, leases - going_on.keys())):
            held, kept = drop(attempts)
        return held, kept | {lease: job for lease, job in going_on.items() if lease in held}

    with mock.patch.object(Attempts, "drop", dropping):
        yield


def _sweeping_at_once() -> AbstractContextManager[None]:
    return mock.patch.object(Rescuer, "wait", return_value=None)


@contextlib.contextmanager
def _one_earlier_id() -> Iterator[None]:
    """Give back what the worker has under its last id only."""
    renew = workers.renew
    with mock.patch.object(workers, "renew", lambda before, *args, **kwargs: renew(before[-1:], *args, **kwargs)):
        yield


def _waits_without_rows() -> AbstractContextManager[None]:
    return _sql(("runs_parked", "SELECT wait.value FROM", "SELECT NULL FROM"))


def _doubtful_ends() -> AbstractContextManager[None]:
    async def nothing(_: Settler) -> None:
        """Write nothing."""

    return mock.patch.object(Settler, "write_again", nothing)


SETTLE = "settle without the lease check"


@contextlib.contextmanager
def _lending_in_the_default_executor() -> Iterator[None]:
    async def abegin(lender: SQLiteTransactions, asked: Operation[bool] | None = None) -> AsyncSQLiteTransaction:
        return AsyncSQLiteTransaction(await asyncio.to_thread(lender.begin, asked), lender._thread)

    async def in_thread(_: AsyncSQLiteTransaction, end: Callable[[], None]) -> None:
        await asyncio.to_thread(end)

    with (
        mock.patch.object(SQLiteTransactions, "abegin", abegin),
        mock.patch.object(AsyncSQLiteTransaction, "_in_thread", in_thread),
    ):
        yield


MUTATIONS: Mapping[str, tuple[Callable[[], AbstractContextManager[None]], str, str]] = {
    SETTLE: (_settle_without_lease, "stale_write", "stale"),
    "progress without the lease check": (_progress_without_lease, "stale_write", "stale"),
    "a dead worker's heartbeat is accepted": (_beat_of_the_dead, "not_drained", "default"),
    "running attempts are not counted against the limit": (_limit_uncounted, "limit_exceeded", "default"),
    "the rescuer ignores when a lease ends": (_expiry_ignored, "lease_taken_early", "default"),
    "a lost attempt of an at-most-once task is released": (_at_most_once_released, "started_twice", "default"),
    "a cron fires an occurrence again": (_fired_again, "cron_fired_twice", "default"),
    "cancelled handlers are not counted against the limit": (_cancelled_uncounted, "limit_exceeded", "limits"),
    "an absence of the database counts as silence": (_absence_unforgiven, "false_loss", "outage"),
    "lent transactions share the default executor": (_lending_in_the_default_executor, "not_drained", "lending"),
    "a clock that is set is followed at once": (_clock_followed_at_once, "early_cron", "clocks"),
    "the heartbeat has no deadline": (_patient, "false_loss", "heartbeat"),
    "the stop waits for the heartbeat": (_joined, "stop_hangs", "heartbeat"),
    "every cancellation is a release": (_any_cancellation, "free_loop", "cancellation"),
    "attempts outlive the lease": (_unguarded, "false_loss", "silence"),
    "a turn of a feeder without the turn before it": (_no_turn_before, "turn_hole", "unseen failover"),
    "a heartbeat of any process with the id": (_any_birth, "worker_unknown", "unseen ids"),
    "a row of a run without the row before it": (_row_before_unnamed, "step_hole", "unseen calls"),
    "a call of a child run without the row before it": (_call_without_row, "step_hole", "unseen calls"),
    "a worker that registers again has a plain id": (_plain_ids, "started_twice", "unseen start"),
    "a lost delivery counts as done": (_lost_delivery_done, "event_skipped", "unseen deliveries"),
    "attempts go on in a new era": (_attempts_kept, "write_lost", "failover"),
    "a sweep does not wait in a new era": (_sweeping_at_once, "false_loss", "failover"),
    "a worker forgets its earlier ids": (_one_earlier_id, "false_loss", "failover"),
    "a run parks although the row of its wait is lost": (_waits_without_rows, "not_drained", "unseen failover"),
    "ends that must not be lost are not written again": (_doubtful_ends, "started_twice", "unseen failover"),
}
"""Each with how it is made, the invariant that finds it, and the profile of faults in which it does."""
