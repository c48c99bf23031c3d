"""Runs of workflows in tests of the stores: start, claim, record and park them without a workflow."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from redrive.engine.outcome import Parked
from redrive.engine.records import Claim
from redrive.engine.runs import NewRun, RunState, StepError, StepKind, StepOutcome, StepRecord
from redrive.engine.steps import FailedTry, NewStep, StepBatch, StepEnd, StepMark, StepsAnswer, StepsWritten
from redrive.policy import Failure, Policy
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.managing_runs import RunView, Timeline
from redrive.stores.operations.runs import start, waits
from redrive.stores.operations.runs.start import StartedRun
from redrive.stores.operations.runs.steps import record as write
from redrive.stores.query import Query, Statements, writes
from tests.stores.helpers import Harness, new, seconds

ERROR = StepError(("builtins.ValueError", "builtins.Exception"), "boom", "ERROR")


def run(id: str | None = "order-42", *, digest: int = 7, workflow: str = "checkout", **job: Any) -> NewRun:
    """Return a run to be started."""
    return NewRun(new(workflow, **job), workflow, 1, digest, id)


def begin(store: Harness, *wanted: NewRun) -> list[StartedRun]:
    """Start runs."""
    return store.do(start.start(wanted or [run()], now=store.now))


def claimed(store: Harness, **options: Any) -> tuple[Claim, RunState]:
    """Claim the next run, and return what is stored of it."""
    found = store.claimed(**options)
    (claim,) = found.claims
    return claim, found.runs[claim.id]


def begun(store: Harness, wanted: NewRun | None = None) -> Claim:
    """Start a run and claim it."""
    begin(store, wanted or run())
    return claimed(store)[0]


@writes
def forget(claim: Claim) -> Statements[None]:
    """Delete the rows of a run, as a standby lacks them that has taken over too early."""
    yield Query("steps_forget", {"ids": [claim.id]})


def gap(store: Harness, answer: StepsAnswer) -> StepsAnswer:
    """Return the answer for a row behind one that is lost: a database in a file loses none, and compares nothing."""
    return StepsAnswer.GAP if store.url.startswith("postgresql:") else answer


def step(path: str = "1", name: str = "charge", **changes: Any) -> NewStep:
    """Return the row of a step that succeeded."""
    ordinary = NewStep(path, StepKind.STEP, name, took=seconds(1), tries=1, result=b'"ok"')
    return replace(ordinary, **changes) if changes else ordinary


def sleep(path: str = "1", count: float = 60) -> NewStep:
    """Return the row of a sleep."""
    return NewStep(path, StepKind.SLEEP, f"{count} s", delay=seconds(count))


def wait(path: str = "1", name: str = "shipped", *, timeout: float | None = None) -> NewStep:
    """Return the row of a wait for a signal."""
    delay = None if timeout is None else seconds(timeout)
    return NewStep(path, StepKind.WAIT, name, StepOutcome.WAITING, delay=delay)


def event(path: str = "1", name: str = "open") -> NewStep:
    """Return the row of a wait for an emitted value."""
    return NewStep(path, StepKind.EVENT, name, StepOutcome.WAITING)


def call(child: int, path: str = "1") -> NewStep:
    """Return the row of a call of a child run."""
    return NewStep(path, StepKind.CALL, "ship", StepOutcome.WAITING, ref=child)


def tried(path: str = "1", *, tries: int = 1, retry: str = "3 1s", last: StepRecord | None = None) -> FailedTry:
    """Return a failed try of a step."""
    history = None if last is None else last.history
    policy = Policy.parse(retry).with_(jitter="none").durable()
    failure = Failure(ERROR.types, ERROR.message)
    return FailedTry(path, StepKind.STEP, "charge", seconds(1), tries, failure, ERROR, policy, 0.5, history=history)


def record(
    store: Harness, claim: Claim, *steps: StepEnd, values: bytes | None = None, before: StepMark | None = None
) -> StepsWritten:
    """Write rows of a running run."""
    batch = StepBatch(claim.id, claim.lease_id, steps, values, before)
    (answer,) = store.do(write([batch], now=store.now))
    return answer


def park(store: Harness, claim: Claim, *steps: StepEnd, **changes: Any) -> None:
    """Park a run."""
    store.end(claim, Parked(changes.pop("until", None), changes.pop("why", "waits"), steps, **changes))


def signal(
    store: Harness, name: str = "shipped", payload: bytes | None = b"7", *, id: str = "order-42", **how: Any
) -> Any:
    """Send a signal to a run."""
    return store.do(waits.signal("checkout", id, name, payload, now=store.now, **how))


def wake(store: Harness) -> frozenset[int]:
    """Wake the runs that wait for what has arrived."""
    return store.do(waits.wake(now=store.now)).runs


def view(store: Harness, id: str = "order-42") -> RunView:
    """Return a run with its job."""
    return store.do(manage.get("checkout", id))


def timeline(store: Harness, id: str = "order-42") -> Timeline:
    """Return all that is stored of a run."""
    return store.do(manage.timeline("checkout", id))


def rows(store: Harness, id: str = "order-42") -> dict[str, StepRecord]:
    """Return the recorded steps of a run by their paths."""
    return {row.path: row for row in timeline(store, id).steps}
