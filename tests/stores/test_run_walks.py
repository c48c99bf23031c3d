"""Random walks of runs through the store, with crashes at each named point, compared with a model after each step.

Runs are started, claimed, record steps, park for a time or for a signal, and are woken. Workers lose their leases
before a row is written (the effect is done and the row is not), after it (the reply of the commit is lost), and instead
of parking (parked and not committed). A recorded row stays as it is, and the next holder gets all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Parked, Succeeded
from redrive.engine.records import Claim
from redrive.engine.runs import RunState, StepKind, StepOutcome
from redrive.engine.steps import NewStep, StepsAnswer
from redrive.stores.operations import checks
from tests.selection import sized
from tests.stores.helpers import seconds
from tests.stores.runs import begin, record, run, signal, step, timeline, wake
from tests.stores.walking import Walk, walks

NAME = "shipped"
CRASHES = 2
"""Crashes in a row after which a run is executed once more; the next one is its death."""


@dataclass
class Known:
    """A run as it must be.

    Attributes:
        rows: the result of each row by its path; None for one that waits.
        lease: of the present holder; None if it has none.
        due_at: when it may be claimed; None if it waits for a signal.
        waits: the path of the row that waits for a signal.
        unread: the ids of its signals that no row has read.
        crashes: since its last row.
    """

    number: int
    due_at: datetime | None
    rows: dict[str, bytes | None] = field(default_factory=dict)
    lease: int | None = None
    waits: str | None = None
    unread: list[int] = field(default_factory=list)
    crashes: int = 0
    state: State = State.READY

    @property
    def path(self) -> str:
        """The path of the next row."""
        return str(len(self.rows) + 1)


class RunMachine(Walk):
    """Runs in a store, and their model."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Known] = {}
        self.claims: list[tuple[str, Claim]] = []
        self.executions = 0
        self.ended: set[int] = set()
        """Leases that ended by a settle; the same settle again is answered as the first, and changes nothing."""
        self.worker = 0

    @initialize()
    def arrive(self) -> None:
        """Register a worker, and start a run that it claims."""
        self.worker = self.store.worker()
        self.start()
        self.claim()

    def _mine(self, id: str, claim: Claim) -> bool:
        return self.runs[id].lease == claim.lease_id

    def _effect(self) -> bytes:
        """Return the result of an execution, which no other execution has."""
        self.executions += 1
        return str(self.executions).encode()

    def _chosen(self, data: st.DataObject) -> tuple[str, Claim]:
        """Choose a claim, mostly of a present holder."""
        if not any(self._mine(*each) for each in self.claims):
            self.claim()
        present = [each for each in self.claims if self._mine(*each)]
        lost = [each for each in self.claims if not self._mine(*each) and each[1].lease_id not in self.ended]
        return data.draw(st.sampled_from([*(present * 4), *lost[-1:], self.claims[-1]]))

    # ---------------------------------------------------------------------------------------------------- rules

    @precondition(lambda self: len(self.runs) < 3)
    @rule()
    def start(self) -> None:
        """Start a run."""
        id = f"r{len(self.runs)}"
        (started,) = begin(self.store, run(id))
        self.runs[id] = Known(started.job_id, self.store.now)

    @rule()
    def claim(self) -> None:
        """Claim a run, as soon as one is due; the claim has all of its rows."""
        later = [
            known.due_at for known in self.runs.values() if known.state is State.READY and known.due_at is not None
        ]
        if later and min(later) > self.store.now:
            self.pass_time((min(later) - self.store.now).total_seconds())
        due = {known.number for known in self.runs.values() if self._is_due(known)}
        found = self.store.claimed(worker=self.worker)
        assert len(found.claims) == min(1, len(due))
        for claim in found.claims:
            state: RunState = found.runs[claim.id]
            known = self.runs[state.run.id]
            known.lease, known.state = claim.lease_id, State.RUNNING
            self.claims.append((state.run.id, claim))

            assert claim.id in due
            assert known.rows == {row.path: row.result for row in state.steps}
            assert known.unread == [each.id for each in state.signals if each.path is None]

    def _is_due(self, known: Known) -> bool:
        return known.state is State.READY and known.due_at is not None and known.due_at <= self.store.now

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), times=st.integers(1, 2))
    def execute(self, data: st.DataObject, times: int) -> None:
        """Execute a step and write its row, twice if a reply is lost; a former holder writes nothing."""
        id, claim = self._chosen(data)
        known = self.runs[id]
        if known.waits is not None and self._mine(id, claim):
            return
        row = step(known.path, result=self._effect())
        for _ in range(times):
            answer = record(self.store, claim, row)

            assert (StepsAnswer.WRITTEN if self._mine(id, claim) else StepsAnswer.LOST) == answer.answer
        if self._mine(id, claim):
            known.rows[row.path], known.crashes = row.result, 0

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        """Write the row of a wait after its signal has arrived."""
        id, claim = self._chosen(data)
        known = self.runs[id]
        if known.waits is None or not known.unread or not self._mine(id, claim):
            return
        read, path = known.unread.pop(0), known.waits
        end = NewStep(path, StepKind.WAIT, NAME, result=self._effect(), ref=read)

        assert StepsAnswer.WRITTEN == record(self.store, claim, end).answer
        known.rows[path], known.waits, known.crashes = end.result, None, 0

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), count=st.sampled_from([1, 5]))
    def sleep(self, data: st.DataObject, count: int) -> None:
        """Park for a time, with the row of the sleep."""
        id, claim = self._chosen(data)
        known = self.runs[id]
        if known.waits is not None:
            return
        row = NewStep(known.path, StepKind.SLEEP, "a while", delay=seconds(count))
        if self._park(id, claim, row):
            known.rows[row.path] = None
            known.due_at = self.store.now + seconds(count)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def wait_for(self, data: st.DataObject) -> None:
        """Park until a signal arrives; one that is there already makes the run due at once."""
        id, claim = self._chosen(data)
        known = self.runs[id]
        path = known.waits or known.path
        row = NewStep(path, StepKind.WAIT, NAME, StepOutcome.WAITING)
        if self._park(id, claim, row):
            known.rows[path], known.waits = None, path
            known.due_at = self.store.now if known.unread else None

    def _park(self, id: str, claim: Claim, row: NewStep) -> bool:
        """Park a run; return False if its lease is lost, and nothing was written."""
        is_mine, known = self._mine(id, claim), self.runs[id]
        answer = self.store.settle((claim, Parked(None, "waits", (row,))))

        assert claim.lease_id in self.ended or is_mine == (claim.lease_id not in answer.lost)
        if is_mine:
            known.lease, known.state, known.crashes = None, State.READY, 0
            self.ended.add(claim.lease_id)
        return is_mine

    @rule(data=st.data(), wakes=st.booleans())
    def send(self, data: st.DataObject, wakes: bool) -> None:
        """Send a signal; the run wakes now, or at a later look."""
        open_ = [id for id, known in self.runs.items() if known.state in (State.READY, State.RUNNING)]
        waiting = [id for id in open_ if self.runs[id].waits is not None and not self.runs[id].unread]
        if not open_ or (not waiting and data.draw(st.integers(0, 3)) > 0):
            return
        id = data.draw(st.sampled_from(waiting or open_))
        known = self.runs[id]
        known.unread.append(signal(self.store, NAME, b"1", id=id))
        if wakes:
            self.look()

    @rule()
    def look(self) -> None:
        """Wake the runs with signals that have arrived."""
        woken = wake(self.store)
        for known in self.runs.values():
            if known.state is State.READY and known.waits is not None and known.unread and known.due_at is None:
                known.due_at = self.store.now

                assert known.number in woken

    @precondition(lambda self: self.executions > 5)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """End a run."""
        id, claim = self._chosen(data)
        known, is_mine = self.runs[id], self._mine(id, claim)
        answer = self.store.settle((claim, Succeeded(b"1")))

        assert claim.lease_id in self.ended or is_mine == (claim.lease_id not in answer.lost)
        if is_mine:
            known.lease, known.state = None, State.SUCCEEDED
            self.ended.add(claim.lease_id)

    @precondition(lambda self: self.executions > 2)
    @rule()
    def crash(self) -> None:
        """Let the worker fall silent; another one finds its runs."""
        running = [known for known in self.runs.values() if known.state is State.RUNNING]
        if any(known.crashes == CRASHES and known.rows for known in running):
            # That run would take its steps back, which the walk does not know.
            return
        self.store.wait(16)
        self.worker = self.store.worker("host:2")
        self.store.sweep()
        for known in running:
            known.crashes += 1
            known.lease, known.due_at = None, self.store.now
            known.state = State.READY if known.crashes <= CRASHES else State.DEAD

    @rule(count=st.sampled_from([1, 5]))
    def pass_time(self, count: float) -> None:
        """Advance the clock, with a heartbeat."""
        self.store.wait(count)
        self.store.beat(self.worker)

    # ----------------------------------------------------------------------------------------------- invariants

    @invariant()
    def it_holds(self) -> None:
        """Compare rows, states and leases with the model, and check the invariants of the store."""
        for id, known in self.runs.items():
            found = timeline(self.store, id)

            assert known.rows == {row.path: row.result for row in found.steps}
            assert (known.state, known.lease) == (found.job.state, found.job.lease_id)
            assert known.unread == [each.id for each in found.signals if each.path is None]
        assert () == self.store.do(checks.check()).findings


TestMemory = pytest.mark.slow(walks(RunMachine, "memory", sized(40, 100)))
TestFile = walks(RunMachine, "file", 20)
TestTurso = walks(RunMachine, "turso", 3)
TestPostgres = walks(RunMachine, "postgres", 10)
