"""A model of state machines, against the store in memory: events, failures, crashes, timeouts and operators.

The model keeps of each instance its state, the transition that runs or has failed, the events that wait, and when its
timeout is due; it computes them with `redrive.engine.machine.step` alone. After each step the rows agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.engine.machine import MachineDefinition, Move, step
from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.errors import InstanceNotFound, MachineBusy, MachineError, MachineFailed, NoTransition
from redrive.stores.operations import checks
from tests.stores.helpers import FATAL, Harness, failed
from tests.stores.machines import DAY, Automaton

KEYS = st.sampled_from("ab")
EVENTS = st.sampled_from(["Created", "Paid", "Expired", "Completed"])


@dataclass
class Model:
    """One instance, as it should be."""

    state: str | None = None
    to_state: str | None = None
    failed: bool = False
    reviews: bool = False
    waiting: list[str] = field(default_factory=list)
    timeout_at: datetime | None = None
    moves: int = 0

    @property
    def busy(self) -> bool:
        """Return True while a transition runs or has failed."""
        return self.to_state is not None


class MachineModel(RuleBasedStateMachine):
    """Random events and faults."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Harness("memory://", "sync")
        self.real = Automaton(self.store)
        self.real.retry = "1 1s"
        self.known: dict[str, Model] = {}
        self.claims: dict[str, Claim] = {}

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()

    @property
    def definition(self) -> MachineDefinition:
        """The machine."""
        return self.real.definition

    def chosen(self, model: Model | None, event: str) -> str | None:
        """Return the state that an event leads to."""
        found = step(self.definition, None if model is None else model.state, event, {}, None)
        return found.to.name if isinstance(found, Move) else None

    # ------------------------------------------------------------------------------------------------- events

    @rule(key=KEYS, event=EVENTS)
    def send(self, key: str, event: str) -> None:
        """Send an event; it is refused exactly when the model refuses it."""
        model, to = self.known.get(key), None
        busy = model is not None and model.busy
        if not busy:
            to = self.chosen(model, event)
        ignored = not busy and model is not None and model.state == "paid" and event == "Paid"
        try:
            self.real.send(event, key)
        except MachineError as error:
            refusal = MachineFailed if model is not None and model.failed else MachineBusy if busy else NoTransition
            assert (None, False, refusal) == (to, ignored, type(error))  # noqa: PT017 - one of three, by the model
            return
        assert ignored or to is not None
        if to is not None:
            self.known.setdefault(key, Model()).to_state = to

    @rule(key=KEYS, event=EVENTS)
    def queue(self, key: str, event: str) -> None:
        """Put an event into line."""
        self.real.queue(event, key)
        self.known.setdefault(key, Model()).waiting.append(event)

    @rule()
    def turns(self) -> None:
        """Take turns until nothing changes; timeouts come first, and the event of a failure before others."""
        for model in self.known.values():
            if not model.busy and model.timeout_at is not None and model.timeout_at <= self.store.now:
                model.to_state = "expired"
        while self.real.turns():
            pass
        for model in self.known.values():
            if model.failed and model.reviews:
                model.to_state, model.failed, model.reviews = "review", False, False
            while not model.busy and model.waiting:
                model.to_state = self.chosen(model, model.waiting.pop(0))

    @rule(seconds=st.sampled_from([1, 60, 86_400, 3 * 86_400]))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.store.wait(seconds)

    # ------------------------------------------------------------------------------------------------- attempts

    @rule(key=KEYS, follows=st.booleans())
    def succeed(self, key: str, follows: bool) -> None:
        """Let the attempt of a transition succeed, perhaps with a next event, and settle it twice."""
        claim = self.claims.pop(key, None)
        if claim is None:
            return
        model = self.known[key]
        effects = self.real.effects(claim)
        after = model.to_state
        following = "paid" if follows and after == "created" else None
        if following:
            effects = (*effects, self.real.following("Paid", following, key))
        for _ in range(2):
            self.store.settle((claim, Succeeded(effects=effects)))
        assert after is not None
        model.state, model.to_state, model.moves = after, following, model.moves + 1
        model.timeout_at = self.store.now + 3 * DAY if after == "paid" else None

    @rule()
    def claim(self) -> None:
        """Claim what is due."""
        for claim in self.store.claim(10):
            self.claims[(claim.origin or "").rpartition("/")[2]] = claim

    @rule(key=KEYS)
    def retry_later(self, key: str) -> None:
        """Let an attempt fail, so that another one follows; a last one fails for good."""
        claim = self.claims.pop(key, None)
        if claim is not None:
            moved = self.store.end(claim, failed())
            if moved.state == "dead":
                self._dead(key)

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        """Let an attempt fail for good."""
        claim = self.claims.pop(key, None)
        if claim is not None:
            self.store.end(claim, FATAL)
            self._dead(key)

    def _dead(self, key: str) -> None:
        model = self.known[key]
        model.failed, model.reviews = True, model.to_state == "completed"

    @rule(key=KEYS)
    def cancel(self, key: str) -> None:
        """Cancel the job of a transition."""
        model = self.known.get(key)
        if model is not None and model.busy and not model.failed:
            self.store.cancel(self.real.get(key).job_id or 0)
            self.claims.pop(key, None)
            self._dead(key)

    # ------------------------------------------------------------------------------------------------- operators

    @precondition(lambda self: any(model.failed and not model.reviews for model in self.known.values()))
    @rule(retries=st.booleans())
    def help_out(self, retries: bool) -> None:
        """Retry or skip all failed transitions."""
        for key, model in self.known.items():
            if model.failed and not model.reviews:
                if retries:
                    self.store.retry(self.real.get(key).job_id or 0)
                else:
                    self.real.skip(key)
                    model.to_state = None
                model.failed = False

    @rule(key=KEYS, state=st.sampled_from(["created", "paid", "completed"]))
    def reset(self, key: str, state: str) -> None:
        """Put an instance into a state, unless a transition runs."""
        model = self.known.get(key)
        try:
            self.real.reset(state, key)
        except (InstanceNotFound, MachineBusy):
            assert model is None or (model.busy and not model.failed)
            return
        assert model is not None
        self.known[key] = Model(state, waiting=model.waiting, moves=model.moves + 1)
        self.known[key].timeout_at = self.store.now + 3 * DAY if state == "paid" else None

    # ------------------------------------------------------------------------------------------------- agreement

    @invariant()
    def agrees(self) -> None:
        """The rows are those of the model, and no rule of the check is violated."""
        for key, model in self.known.items():
            found = self.real.get(key)
            assert (model.state, model.to_state, model.moves) == (found.state, found.to_state, found.moves)
            assert (model.failed, model.timeout_at) == (found.status == "failed", found.timeout_at)
        assert () == self.store.do(checks.check()).findings


MachineModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)

TestMachines = pytest.mark.slow(MachineModel.TestCase)
"""Instances agree with their model after each step."""
