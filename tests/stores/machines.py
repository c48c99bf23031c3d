"""State machines for tests: one definition of a payment, and the operations on it in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.engine.machine import (
    FAILED,
    Entered,
    FailedTransition,
    Guard,
    InstanceRecord,
    MachineDefinition,
    MachineState,
    Move,
    MoveRecord,
    NextMachineEvent,
    StateTimeout,
    entered,
    step,
)
from redrive.engine.origin import Effect, of_machine
from redrive.engine.outcome import Outcome, Succeeded
from redrive.engine.records import Claim, NewJob
from redrive.stores.operations.machines import manage, rows, turns
from redrive.stores.operations.machines import send as sending
from redrive.stores.operations.machines.rows import Choice, MachineEvent, Start
from redrive.stores.operations.machines.send import Busy, Sent
from redrive.stores.operations.machines.turns import DueTurns, Known, MachineTurn, TurnsTaken
from redrive.stores.query import Query, Statements, writes
from tests.stores.helpers import FATAL, Harness, new

DAY = timedelta(days=1)

EXPIRY = StateTimeout(3 * DAY, "Expired", b"{}")


def payment(*, guard: Guard | None = None, timeout: StateTimeout | None = EXPIRY) -> MachineDefinition:
    """Return the machine: created, then paid or expired, then completed or, after a failure, review."""
    states = (
        MachineState("created", "Created", start=True),
        MachineState("paid", "Paid", after=("created",), guard=guard, timeout=timeout, ignore=frozenset({"Paid"})),
        MachineState("expired", "Expired", after=("paid",)),
        MachineState("completed", "Completed", after=("paid", "review"), failed_to="review"),
        MachineState("review", FAILED),
    )
    return MachineDefinition("payment", {state.name: state for state in states})


class Automaton:
    """The payments of a store.

    Args:
        store: harness with its colour and instant.
        definition: the machine as the code has it.
    """

    def __init__(self, store: Harness, definition: MachineDefinition | None = None) -> None:
        self.store = store
        self.definition = definition or payment()
        self.retry = "1 1s"

    # ------------------------------------------------------------------------------------------------- choosing

    def job(self, key: str, state: str) -> NewJob:
        """Return the job of a transition."""
        return replace(new(f"payment.{state}", retry=self.retry), origin=of_machine("payment", key))

    def choose(self, instance: InstanceRecord | None, key: str, event: str, payload: bytes = b"{}") -> Choice:
        """Choose the transition of an event."""
        state = None if instance is None else instance.state
        data = None if instance is None or instance.data is None else msgspec.json.decode(instance.data)
        found = step(self.definition, state, event, msgspec.json.decode(payload), data)
        if isinstance(found, Move):
            return Start(found.to.name, self.job(key, found.to.name), found.to.failed_to)
        return found

    def resolve(self, instance: InstanceRecord, event: str, payload: bytes) -> Choice:
        """Choose the transition of a stored event."""
        if event == FAILED:
            failed = msgspec.json.decode(payload, type=FailedTransition)
            found = step(self.definition, instance.state, event, failed, None)
            return Start(found.to.name, self.job(instance.key, found.to.name)) if isinstance(found, Move) else found
        return self.choose(instance, instance.key, event, payload)

    @property
    def known(self) -> Known:
        """The states of the code and the classes of their events."""
        states = self.definition.states.values()
        events = tuple(sorted({f"payment/{each.event}" for each in states}))
        return Known(("payment",), tuple(f"payment/{each.name}" for each in states), events)

    # ------------------------------------------------------------------------------------------------- acting

    def sending(
        self,
        event: str,
        key: str = "a",
        *,
        event_key: str | None = None,
        payload: bytes = b"{}",
        busy: Busy = Busy.RAISE,
    ) -> Any:
        """Return the operation that sends an event."""
        given = MachineEvent("payment", key, event, payload, f"{event}{payload.decode()}", event_key)
        return sending.send(given, lambda found: self.choose(found, key, event, payload), busy=busy, now=self.store.now)

    def send(self, event: str, key: str = "a", **options: Any) -> Sent:
        """Send an event."""
        return self.store.do(self.sending(event, key, **options))

    def queue(self, event: str, key: str = "a", **options: Any) -> Sent:
        """Put an event into line."""
        return self.send(event, key, busy=Busy.QUEUE, **options)

    def take(self) -> Claim:
        """Claim the next job."""
        (claim,) = self.store.claim()
        return claim

    def effects(self, claim: Claim, *more: Effect) -> tuple[Effect, ...]:
        """Return the effects of a successful transition."""
        state = claim.task.partition(".")[2]
        return (entered(self.definition, state, "v1"), *more)

    def run(self, *more: Effect) -> Claim:
        """Claim the next transition and let it succeed with these effects."""
        claim = self.take()
        self.store.end(claim, Succeeded(effects=self.effects(claim, *more)))
        return claim

    def fail(self, outcome: Outcome = FATAL) -> Claim:
        """Claim the next job and let it fail for good."""
        claim = self.take()
        self.store.end(claim, outcome)
        return claim

    def walk(self, *events: str, key: str = "a") -> InstanceRecord:
        """Send events, each after the transition of the one before."""
        for event in events:
            self.send(event, key)
            self.run()
        return self.get(key)

    def following(self, event: str, state: str, key: str = "a") -> NextMachineEvent:
        """Return the effect of a handler that sends a next event."""
        failed_to = self.definition.states[state].failed_to
        return NextMachineEvent(state, event, f"{event}{{}}", self.job(key, state), failed_to)

    def turns(self, budget: int = 100) -> tuple[MachineTurn, ...]:
        """Take the turns of due timeouts and waiting events."""
        return self.taken(budget).turns

    def taken(self, budget: int = 100) -> TurnsTaken:
        """Take these turns, and return all that this has changed."""
        return self.store.do(turns.take_turns(self.known, self.resolve, budget=budget, now=self.store.now))

    def turn(self, key: str = "a") -> tuple[MachineTurn, ...]:
        """Take the turn of one instance."""
        return self.store.do(turns.take_turn(self.known, "payment", key, self.resolve, now=self.store.now))

    def entered(self, state: str) -> Entered:
        """Return the properties of a state."""
        return entered(self.definition, state, "v1")

    def skip(self, key: str = "a") -> InstanceRecord:
        """Skip a failed transition."""
        return self.store.do(manage.skip("payment", key, actor="ann", now=self.store.now))

    def reset(self, state: str, key: str = "a") -> InstanceRecord:
        """Put an instance into a state."""
        return self.store.do(manage.reset("payment", key, state, self.entered(state), actor="ann", now=self.store.now))

    def delete(self, key: str = "a") -> None:
        """Delete an instance."""
        self.store.do(manage.delete("payment", key, actor="ann", now=self.store.now))

    def migrate(self, old: str, new_state: str, **options: Any) -> manage.Migrated:
        """Move instances to another state."""
        how = self.entered(new_state)
        return self.store.do(manage.migrate("payment", old, new_state, how, actor="ann", now=self.store.now, **options))

    def delete_history(self, key: str = "a") -> None:
        """Delete the events of an instance, as no operation does."""
        self.store.do(_delete_history("payment", key))

    # ------------------------------------------------------------------------------------------------- reading

    def get(self, key: str = "a") -> InstanceRecord:
        """Read an instance."""
        return self.store.do(manage.get("payment", key))

    def history(self, key: str = "a") -> list[MoveRecord]:
        """Read the events of an instance, the first one first."""
        return list(reversed(self.store.do(manage.history("payment", key))))

    def moves_of(self, key: str = "a") -> list[tuple[str | None, str | None, str | None, str]]:
        """Return the states, the event and the status of each event."""
        return [(each.from_state, each.to_state, each.event, str(each.status)) for each in self.history(key)]

    def look(self) -> DueTurns:
        """Read what is due."""
        return self.store.do(turns.look(self.known, now=self.store.now))


@writes
def _delete_history(machine: str, key: str) -> Statements[None]:
    yield Query("moves_delete", {"machine": machine, "key": key})


@writes
def leave(instance: InstanceRecord, job_id: int | None = None) -> Statements[None]:
    """Give an instance another job, or none, as only a defect does."""
    changed = replace(instance, job_id=job_id, to_state="created", event="Created")
    free = replace(instance, job_id=None, to_state=None, event=None)
    yield rows.put([free if job_id is None else changed])


@writes
def place(keys: Sequence[str], state: str, at: datetime) -> Statements[None]:
    """Insert idle instances in a state, as an earlier deployment has left them."""
    row = {"machine": "payment", "now": at, "to_state": None, "job_id": None, "event": None}
    for key in keys:
        yield Query("instance_insert", row | {"key": key})
    found = yield from rows.lock(("payment", key) for key in keys)
    yield rows.put(replace(each, state=state, moves=1) for each in found.values())


def data(value: object) -> bytes:
    """Return data as JSON."""
    return msgspec.json.encode(value)


def statuses(moves: Sequence[MoveRecord]) -> list[str]:
    """Return the status of each event."""
    return [str(move.status) for move in moves]
