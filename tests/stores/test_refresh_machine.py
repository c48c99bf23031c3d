"""Random sequences of events for tracked items: their rows are in the state of the pure transitions.

Two items of one refresh, a worker that crashes now and then, sweeps, operators, another policy that is deployed, and
time that passes. The model holds only a `RefreshState` for each item, and uses `redrive.schedule.refresh`; it also
stores the job of each attempt, and the time when a worker claimed it. After each step both are compared, and the
invariant checker must find no problem."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from redrive.engine.outcome import Succeeded
from redrive.engine.records import Claim
from redrive.schedule import Exhausted, RefreshOutcome, RefreshPolicy, RefreshState, Schedule, Strategy, refresh
from redrive.stores.operations import checks
from redrive.stores.operations.refresh import items
from tests.selection import sized
from tests.stores.helpers import FATAL, LEASE, failed
from tests.stores.recurring import HOUR, HOURLY, MINUTE, Clockwork, keeping
from tests.stores.walking import Walk, walks

KEYS = ("a", "b")


def uneven(retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
    """Return a strategy that depends on all arguments."""
    return Strategy.ALIGN if (retry_at < planned_at) == (failures % 2 == 1) else Strategy.UNTIL_SUCCESS


Strategy.register("uneven in the walk", uneven)
POLICIES = {
    "ends": keeping(delays=(5 * MINUTE,), give_up_after=2 * HOUR),
    "since success": keeping(
        delays=(5 * MINUTE, HOUR),
        repeat_last=True,
        give_up_after=2 * HOUR,
        give_up_since="last_success",
        strategy="uneven in the walk",
    ),
    "goes on": keeping(delays=(MINUTE, 20 * MINUTE), strategy=Strategy.UNTIL_SUCCESS, on_exhausted=Exhausted.WAIT_NEXT),
    "other": keeping(schedule=Schedule.cron("45 */2 * * *"), strategy=Strategy.WHICHEVER_FIRST, delays=(MINUTE,)),
}
"""The policies that may be declared."""

LATE = st.sampled_from([0, 60, 601, 2000, 8000])
"""Spans of seconds that a step waits, long enough for timeouts and retries."""

OUTCOMES = {"success": Succeeded(), "failure": failed(), "fatal": FATAL}


class RefreshMachine(Walk):
    """A store and its model, compared after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.clockwork = Clockwork(self.store, keeping(schedule=HOURLY))
        self.clockwork.declare(self.clockwork.definition)
        self.model: dict[str, RefreshState] = {}
        self.claims: list[Claim] = []
        self.began: dict[str, datetime] = {}

    @property
    def policy(self) -> RefreshPolicy:
        """Return the present policy of the items."""
        return self.clockwork.definition.policy

    def moved(self, key: str, how: Any, **given: Any) -> RefreshOutcome:
        """Apply a transition to the model, and return its result."""
        move = how(self.policy, self.model[key], now=self.store.now, **given)
        self.model[key] = move.state
        return move.outcome

    def newest(self, key: str) -> str:
        """Return the token of the attempt that has just begun, which the model reads from the store."""
        return str(self.clockwork.item(key).job_id)

    @initialize()
    def arrive(self) -> None:
        """Track the items at the start."""
        for key in KEYS:
            self.track(key, at_once=True)

    # ---------------------------------------------------------------------------------------------------- rules

    @rule(key=st.sampled_from(KEYS), at_once=st.booleans())
    def track(self, key: str, at_once: bool) -> None:
        """Track an item, which may be tracked already."""
        fresh = self.clockwork.track(key, at_once=at_once)
        assert (key not in self.model) == (key in fresh)
        if key in fresh:
            self.model[key] = RefreshState()
            self._update(key, at_once=at_once)

    def _update(self, key: str, *, at_once: bool) -> None:
        self.moved(key, refresh.update, at_once=at_once)
        if at_once and not self.model[key].paused:
            self.moved(key, refresh.start, uid=self.newest(key))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), at_once=st.booleans())
    def update(self, data: st.DataObject, at_once: bool) -> None:
        """Record a manual change of an item."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.clockwork.update(key, at_once=at_once)
        self._update(key, at_once=at_once)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def trigger(self, data: st.DataObject) -> None:
        """Trigger an item."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        turned = self.clockwork.trigger(key)
        self.model[key] = self._timed(self.model[key])

        assert self.moved(key, refresh.trigger, uid=self.newest(key)) == turned.outcome

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        """Pause an item, or resume it."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[key].paused:
            self.clockwork.resume(key)
            self.moved(key, refresh.resume)
        else:
            self.clockwork.pause(key)
            self.model[key] = refresh.pause(self.model[key]).state

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def untrack(self, data: st.DataObject) -> None:
        """Stop tracking an item."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        del self.model[key]

        assert self.clockwork.untrack(key)

    @rule(late=LATE)
    def start(self, late: int) -> None:
        """Start the items that are due."""
        self.store.wait(late)
        turned = {each.key: each.outcome for each in self.clockwork.start()}
        due = [key for key, state in self.model.items() if refresh.is_due(state, self.store.now)]

        assert {key: self.moved(key, refresh.start, uid=self.newest(key)) for key in due} == turned

    @rule(crashes=st.booleans())
    def claim(self, crashes: bool) -> None:
        """Claim jobs; a worker that crashes loses them to the next sweep."""
        claims = self.store.claim(5, worker=self.store.worker() if crashes else None)
        if crashes:
            began = {str(each.id): self.store.now for each in claims}
            self.store.wait(LEASE.total_seconds() + 1)
            for moved in self.store.sweep():
                self.began |= {token: at for token, at in began.items() if token == str(moved.job_id) and moved.report}
                if moved.report is None:
                    # The job waits in its queue again, and the time limit counts from its next claim.
                    self.began.pop(str(moved.job_id), None)
                self._ended(moved.job_id, "failure" if moved.report else "goes on")
        else:
            self.claims += claims
            self.began |= {str(each.id): self.store.now for each in claims}

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=st.sampled_from(sorted(OUTCOMES)))
    def settle(self, data: st.DataObject, how: str) -> None:
        """Settle an attempt, perhaps a superseded or swept one, or for the second time."""
        claim = data.draw(st.sampled_from(self.claims))
        if claim.lease_id not in self.store.settle((claim, OUTCOMES[how])).lost:
            self._ended(claim.id, how)

    def _ended(self, number: int, how: str) -> None:
        for key, state in self.model.items():
            if state.attempt_uid == str(number) and how != "goes on":
                given = {"permanent": FATAL.failure.permanent} if how == "fatal" else {}
                if str(number) in self.began and how != "success":
                    began = self.began[str(number)]
                    self.model[key] = refresh.begun(self.policy, state, now=began, uid=str(number)).state
                self.moved(key, refresh.success if how == "success" else refresh.failure, uid=str(number), **given)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel the job of an attempt."""
        state = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        if state.attempt_uid is not None and self.store.cancel(int(state.attempt_uid)):
            self._ended(int(state.attempt_uid), "failure")

    @rule(late=LATE)
    def sweep(self, late: int) -> None:
        """Sweep expired leases."""
        self.store.wait(late)
        done = self.clockwork.sweep()
        before = dict(self.model)
        for key in self.model:
            self._swept(key)

        assert len([key for key in before if before[key] != self.model[key]]) == done

    def _swept(self, key: str) -> None:
        state, now = self.model[key], self.store.now
        token, deadline = state.attempt_uid, state.deadline_at
        if token is None or deadline is None or deadline > now:
            self.moved(key, refresh.sweep)
        else:
            begun = self.model[key] = self._timed(state)
            if begun.deadline_at is not None and begun.deadline_at <= now:
                at = min(deadline, begun.deadline_at)
                self.model[key] = refresh.failure(self.policy, begun, now=at, uid=token).state

    def _timed(self, state: RefreshState) -> RefreshState:
        token = state.attempt_uid
        if token is None:
            return state
        if token not in self.began:  # no worker has claimed it
            return refresh.wait(self.policy, state, now=self.store.now).state
        return refresh.begun(self.policy, state, now=self.began[token], uid=token).state

    @rule(name=st.sampled_from(sorted(POLICIES)))
    def deploy(self, name: str) -> None:
        """Deploy another policy, and compute the states of the items again."""
        changed = POLICIES[name].timing != self.clockwork.definition.timing
        self.clockwork.definition = POLICIES[name]
        self.clockwork.declare(POLICIES[name])
        for key in self.model if changed else ():
            self.moved(key, refresh.replan)

        assert self.clockwork.replan() in {0, len(self.model)}

    # ----------------------------------------------------------------------------------------------- invariants

    @invariant()
    def it_holds(self) -> None:
        """Compare the rows with the model, and check the invariants."""
        rows = {each.key: each.state for each in self.store.do(items.select("fresh"))}

        assert self.model == rows
        assert () == self.store.do(checks.check()).findings


TestMemory = pytest.mark.slow(walks(RefreshMachine, "memory", sized(30, 60), steps=40))
TestPostgres = walks(RefreshMachine, "postgres", 5, steps=40)
