"""Every order of the transactions of two workers and an operator around one job, with a crash at each point.

The moves are whole transactions on the store in memory. A crash between two statements of a transaction rolls it back,
so it is the crash before that transaction; a reply that is lost is a crash of the connection after it. The search goes
back in the database by savepoints, and enters a state once, however it was reached.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from redrive.engine.frozen import freeze
from redrive.engine.lifecycle import FINAL, State
from redrive.engine.outcome import Failed, Outcome, Succeeded
from redrive.engine.records import Claim, NewJob
from redrive.errors import StoreError
from redrive.policy import Failure, Policy
from redrive.stores.drivers.sqlite import SQLiteSettings
from redrive.stores.drivers.sqlite.connection import drive
from redrive.stores.operations import admin, jobs, leases, workers
from redrive.stores.operations.leases import Ending
from redrive.stores.query import Operation
from tests.simulation.scheduler import EPOCH

__all__ = ["Explored", "explore"]

LEASE = timedelta(seconds=3)

_FAILED = Failed(Failure(("builtins.ValueError", "builtins.Exception"), "boom"))


@dataclass(frozen=True)
class Actor:
    """A worker process with the state in its memory.

    Attributes:
        id: id of the worker.
        alive: False after its crash.
        held: the attempt that its handler runs.
        ended: the outcome of the handler, if the reply to its settle was lost.
        claims: number of its claims."""

    id: int
    alive: bool = True
    held: Claim | None = None
    ended: Outcome | None = None
    claims: int = 0


@dataclass(frozen=True)
class ModelState:
    """Everything outside of the database.

    Attributes:
        actors: the workers.
        leases: spans of a lease that have passed.
        cancelled: True once the operator has asked to cancel.
        path: the moves that led here.
    """

    actors: tuple[Actor, ...]
    leases: int = 0
    cancelled: bool = False
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explored:
    """The result of a search.

    Attributes:
        states: number of different states.
        moves: number of moves.
        problems: paths to a state that violates an invariant.
        finals: end states of the job."""

    states: int
    moves: int
    problems: tuple[str, ...]
    finals: frozenset[str]


class Search:
    """A search through all orders.

    Args:
        image: the empty database.
        idempotent: may the task run again after a crash?
        claims: of each worker, at most.
        spans: of a lease that pass, at most.
    """

    def __init__(self, image: bytes, *, idempotent: bool, claims: int, spans: int) -> None:
        self._claims, self._spans = claims, spans
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.deserialize(image)
        self._connection.execute("BEGIN")
        self._cursor = self._connection.cursor()
        self._idempotent = idempotent
        self._seen: set[object] = set()
        self._ending: set[object] = set()  # rows of the job from which it ends; the old workers make no difference
        self._moves = 0
        self._problems: list[str] = []
        self._finals: set[str] = set()
        policy = Policy.parse("1 1s").with_(idempotent=idempotent).durable()
        self._run(jobs.enqueue([NewJob("send", "default", 0, b"{}", freeze(policy))], now=EPOCH))
        names = [self._run(workers.register(n, concurrency=1, lease_for=LEASE, now=EPOCH)) for n in "ab"]
        self._first = ModelState(tuple(Actor(name) for name in names))

    def run(self) -> Explored:
        """Search all states."""
        self._visit(self._first, 0)
        self._connection.close()
        return Explored(len(self._seen), self._moves, tuple(self._problems), frozenset(self._finals))

    def _run(self, operation: Operation[Any]) -> Any:
        return drive(self._cursor, operation.steps, SQLiteSettings(None))

    def _visit(self, model: ModelState, depth: int) -> None:
        state = self._canonical(model)
        if state in self._seen:
            return
        self._seen.add(state)
        self._check(model)
        for name, move in self._possible(model):
            self._moves += 1
            self._cursor.execute(f"SAVEPOINT s{depth}")
            before = self._job()
            path = (*model.path, name)
            try:
                after = replace(move(), path=path)
            except StoreError as error:
                self._problem(replace(model, path=path), f"the database refused: {error}")
            else:
                self._compare(before, self._job(), after)
                self._visit(after, depth + 1)
            self._cursor.execute(f"ROLLBACK TO s{depth}")
            self._cursor.execute(f"RELEASE s{depth}")

    # ---------------------------------------------------------------- moves

    def _possible(self, model: ModelState) -> Iterator[tuple[str, Any]]:
        now = EPOCH + model.leases * LEASE
        for index, actor in enumerate(model.actors):
            if not actor.alive:
                continue
            name = "ab"[index]
            yield f"{name} crashes", lambda i=index: _with(model, i, alive=False, held=None, ended=None)
            if actor.held is None and actor.claims < self._claims:
                yield f"{name} claims", lambda i=index: self._claim(model, i, now)
                yield f"{name} claims, reply lost", lambda i=index: self._claim(model, i, now, received=False)
            if actor.held is not None:
                yield f"{name} beats", lambda i=index: self._beat(model, i, now)
            if actor.ended is not None:
                yield f"{name} settles again", lambda i=index: self._settle(model, i, now)
            elif actor.held is not None:
                for how, outcome in (("a success", Succeeded()), ("a failure", _FAILED)):
                    ended = _with(model, index, ended=outcome)
                    yield f"{name} settles {how}", lambda i=index, w=ended: self._settle(w, i, now)
                    yield (
                        f"{name} settles {how}, reply lost",
                        lambda i=index, w=ended: self._settle(w, i, now, received=False),
                    )
        yield "a worker sweeps", lambda: self._sweep(model, now)
        if not model.cancelled:
            yield "the operator cancels", lambda: self._cancel(model, now)
        if model.leases < self._spans:
            yield "a lease's time passes", lambda: replace(model, leases=model.leases + 1)

    def _claim(self, model: ModelState, index: int, now: Any, *, received: bool = True) -> ModelState:
        actor = model.actors[index]
        claimed = self._run(leases.claim(actor.id, 1, lease_for=LEASE, now=now))
        if not claimed.known and received:
            fresh = self._run(workers.register("again", concurrency=1, lease_for=LEASE, now=now))
            return _with(model, index, id=fresh, claims=actor.claims + 1)
        held = claimed.claims[0] if claimed.claims and received else None
        return _with(model, index, held=held, claims=actor.claims + 1)

    def _beat(self, model: ModelState, index: int, now: Any) -> ModelState:
        actor = model.actors[index]
        pulse = self._run(workers.beat(actor.id, LEASE, now=now))
        assert actor.held is not None
        if actor.held.lease_id in pulse.leases:
            if self._job()[2] != actor.held.lease_id:
                self._problem(model, f"the heartbeat confirms lease {actor.held.lease_id}, which is not current")
            return model
        return _with(model, index, held=None, ended=None)  # the handler is stopped

    def _settle(self, model: ModelState, index: int, now: Any, *, received: bool = True) -> ModelState:
        actor = model.actors[index]
        assert actor.held is not None
        assert actor.ended is not None
        before, history = self._job(), self._history()
        settled = self._run(leases.settle([Ending(actor.held, actor.ended, 0.0)], now=now))
        current = before[2] == actor.held.lease_id
        if not current and (before, history) != (self._job(), self._history()):
            self._problem(model, f"lease {actor.held.lease_id} is not current, and its settle changed the job")
        if current and settled.lost:
            self._problem(model, f"lease {actor.held.lease_id} is current, and its settle was refused")
        return _with(model, index, held=None, ended=None) if received else model

    def _sweep(self, model: ModelState, now: Any) -> ModelState:
        before = self._job()
        expired = self._expired(before[3], now)
        self._run(leases.sweep(10, now=now))
        if before[2] is not None and self._job()[2] != before[2] and not expired:
            self._problem(model, f"lease {before[2]} was swept before its end")
        return model

    def _cancel(self, model: ModelState, now: Any) -> ModelState:
        self._run(admin.cancel(1, now=now))
        return replace(model, cancelled=True)

    # ---------------------------------------------------------------- what must hold

    def _check(self, model: ModelState) -> None:
        job = self._job()
        if job[1] in FINAL:
            self._finals.add(job[1])
        numbers = [number for number, _ in self._history()]
        if numbers != list(range(1, len(numbers) + 1)):
            self._problem(model, f"attempts are numbered {numbers}")
        outcomes = [outcome for _, outcome in self._history()]
        if "succeeded" in outcomes[:-1] or outcomes.count("succeeded") > 1:
            self._problem(model, f"attempts ended {outcomes}")
        if not self._idempotent and "lost" in outcomes and (outcomes[-1] != "lost" or job[1] != State.DEAD):
            self._problem(model, f"idempotent=False: the job is {job[1]}, and its attempts ended {outcomes}")
        if job[1] == State.SUCCEEDED and outcomes[-1:] != ["succeeded"]:
            self._problem(model, f"the job succeeded, and its attempts ended {outcomes}")
        self._check_end(model)

    def _check_end(self, model: ModelState) -> None:
        """From here, a new worker brings the job to an end, as soon as the old ones are silent."""
        rest = self._cursor.execute("SELECT hold, scheduled_at FROM redrive_jobs").fetchone()
        row = (self._job()[1], *self._job()[4:], *rest, *self._history())
        if row in self._ending:
            return
        self._ending.add(row)
        self._cursor.execute("SAVEPOINT ending")
        now = EPOCH + (self._spans + 2) * LEASE
        fresh = self._run(workers.register("c", concurrency=1, lease_for=2 * LEASE, now=now))
        for _ in range(4):
            now += timedelta(seconds=2)
            self._run(leases.sweep(10, now=now))
            for claim in self._run(leases.claim(fresh, 1, lease_for=100 * LEASE, now=now)).claims:
                self._run(leases.settle([Ending(claim, Succeeded(), 0.0)], now=now))
        if self._job()[1] not in FINAL:
            self._problem(model, f"the job stays {self._job()[1]}")
        self._cursor.execute("ROLLBACK TO ending")
        self._cursor.execute("RELEASE ending")

    def _compare(self, before: tuple[Any, ...], after: tuple[Any, ...], model: ModelState) -> None:
        if before[1] in FINAL and after != before:
            self._problem(model, f"the job was {before[1]} and became {after[1]}")
        if after[4] - before[4] not in (0, 1):
            self._problem(model, f"attempt {before[4]} became {after[4]}")

    def _problem(self, model: ModelState, text: str) -> None:
        self._problems.append(f"{' / '.join(model.path)}: {text}")

    # ---------------------------------------------------------------- the database

    def _job(self) -> tuple[Any, ...]:
        statement = "SELECT id, state, lease_id, worker_id, attempt, failures, crashes FROM redrive_jobs"
        return self._cursor.execute(statement).fetchone()

    def _history(self) -> list[tuple[int, str]]:
        return self._cursor.execute("SELECT number, outcome FROM redrive_history ORDER BY lease_id").fetchall()

    def _expired(self, worker: int | None, now: Any) -> bool:
        micros = int((now - EPOCH).total_seconds() * 1e6)
        begin = int(EPOCH.timestamp() * 1e6)
        statement = "SELECT stopped_at, expires_at FROM redrive_workers WHERE id = ?"
        row = self._cursor.execute(statement, (worker,)).fetchone()
        return row is None or row[0] is not None or row[1] <= begin + micros

    def _canonical(self, model: ModelState) -> object:
        """Describe a state without its history of numbers: leases by their age, workers by their rank."""
        job = self._job()
        known = sorted({actor.held.lease_id for actor in model.actors if actor.held} | ({job[2]} - {None}))
        rows = self._cursor.execute("SELECT id, expires_at, stopped_at IS NULL FROM redrive_workers").fetchall()
        now = int((EPOCH + model.leases * LEASE).timestamp() * 1e6)
        alive = {row[0]: (max(row[1] - now, 0), row[2]) for row in rows}
        actors = []
        for actor in model.actors:
            held = None if actor.held is None else known.index(actor.held.lease_id)
            line = None if actor.held is None else self._line(actor.held.lease_id)
            attempt = None if actor.held is None else actor.held.attempt
            ended = type(actor.ended).__name__
            actors.append((actor.alive, alive[actor.id], held, line, attempt, ended, actor.claims, job[3] == actor.id))
        lease = None if job[2] is None else known.index(job[2])
        holder = alive.get(job[3])
        rest = self._cursor.execute("SELECT hold, scheduled_at FROM redrive_jobs").fetchone()
        return (
            *job[1:2],
            lease,
            holder,
            job[4:],
            rest,
            tuple(self._history()),
            tuple(sorted(actors, key=repr)),  # the two workers are alike
            model.leases,
            model.cancelled,
        )

    def _line(self, lease: int) -> str | None:
        row = self._cursor.execute("SELECT outcome FROM redrive_history WHERE lease_id = ?", (lease,)).fetchone()
        return None if row is None else row[0]


def _with(model: ModelState, index: int, **changes: Any) -> ModelState:
    actors = list(model.actors)
    actors[index] = replace(actors[index], **changes)
    return replace(model, actors=tuple(actors))


def explore(image: bytes, *, idempotent: bool, claims: int = 2, spans: int = 1) -> Explored:
    """Search all orders.

    Args:
        image: the empty database; see `database.template`.
        idempotent: may the task run again after a crash?
        claims: of each worker, at most.
        spans: of a lease that pass, at most.

    Returns:
        What the search came to.
    """
    return Search(image, idempotent=idempotent, claims=claims, spans=spans).run()
