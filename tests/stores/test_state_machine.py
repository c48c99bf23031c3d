"""Random sequences of operations: the store behaves like the model, and the invariants hold.

Enqueues with and without keys, bursts, claims by several workers, endings of every kind, late endings under lost
leases, heartbeats, crashes, sweeps, operators, pruning, and time that passes; after each step the whole store is
compared with `tests.stores.model`, so that an unexpected change, or a lost job, appears at once, and the
invariant checker must find no problem. At the end workers return and finish all jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from redrive.engine.outcome import Cancelled, Expired, Outcome, Released, Snoozed, Succeeded, Suspended
from redrive.engine.queue import QueueChange
from redrive.engine.records import Claim, Filter, Hold, JobRecord, KeyUntil, NewJob, OnConflict
from redrive.errors import DuplicateJob, IllegalMove, LeaseLost
from redrive.stores.operations import checks, jobs, queues, retention
from redrive.stores.operations.admin import BulkResult
from redrive.stores.operations.leases import Claimed
from tests.selection import sized
from tests.stores.helpers import FATAL, T0, failed, new, seconds
from tests.stores.model import FINAL, KINDS, Ending, HeldLease, Model
from tests.stores.walking import Walk, walks

QUEUES = ("a", "b")

ENDINGS = ("success", "failure", "fatal", "snooze", "release", "cancel", "expired", "suspend")


def outcome(how: str, delay: int) -> Any:
    """Return the ending of that name."""
    made: dict[str, Outcome] = {
        "success": Succeeded(b"1"),
        "failure": failed(),
        "fatal": FATAL,
        "snooze": Snoozed(seconds(delay)),
        "release": Released("shutdown", seconds(delay)),
        "cancel": Cancelled("enough"),
        "suspend": Suspended(seconds(delay)),
        "expired": Expired(),
    }
    return made[how]


class StoreMachine(Walk):
    """A store and its model, compared after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(T0)
        self.claims: list[Claim] = []
        self.known: list[int] = []
        self.rows: tuple[JobRecord, ...] = ()
        self.most: dict[str, int] = {}

    @initialize()
    def arrive(self) -> None:
        """Register two workers at the start."""
        self.register()
        self.register()

    # ---------------------------------------------------------------------------------------------------- rules

    @precondition(lambda self: len(self.known) < 5)
    @rule()
    def register(self) -> None:
        """Register a worker."""
        worker = self.store.worker(f"host:{len(self.known)}")
        assert worker not in self.known
        self.known.append(worker)
        self.model.workers[worker] = self.model.after(15)

    @rule(
        kind=st.sampled_from([*KINDS, "at once"]),
        queue=st.sampled_from(QUEUES),
        priority=st.integers(0, 1),
        delay=st.sampled_from([0, 0, 1, 5]),
    )
    def enqueue(self, kind: str, queue: str, priority: int, delay: int) -> None:
        """Enqueue a job."""
        known = KINDS[kind]
        job = new(retry=known.directive, queue=queue, priority=priority, delay=delay, idempotent=known.idempotent)

        assert self.model.enqueue(known, queue, priority, delay) == self.store.put(job)

    @rule(
        queue=st.sampled_from(QUEUES),
        key=st.sampled_from(["u", "v"]),
        until=st.sampled_from(["start", "end"]),
        request=st.sampled_from([None, None, "k"]),
    )
    def enqueue_keyed(self, queue: str, key: str, until: str, request: str | None) -> None:
        """Enqueue a job with a unique key, and perhaps with an idempotency key that was used before."""
        job = replace(
            new(retry=KINDS["plain"].directive, queue=queue),
            key=key,
            key_until=KeyUntil(until),
            idempotency_key=request,
        )
        self._place(self.model.enqueue_keyed(KINDS["plain"], queue, key, until, request), job)

    @rule(queue=st.sampled_from(QUEUES), key=st.sampled_from(["u", "w"]), payload=st.sampled_from([b"1", b"2"]))
    def debounce(self, queue: str, key: str, payload: bytes) -> None:
        """Enqueue one more call of a burst."""
        job = replace(
            new(retry=KINDS["plain"].directive, queue=queue, delay=2, payload=payload),
            key=key,
            key_until=KeyUntil.START,
            on_conflict=OnConflict.BOUNCE,
            latest=seconds(5),
        )
        number = self.model.debounce(KINDS["plain"], queue, key, payload)
        self._place(number, job)
        if number is not None:
            assert payload == self.store.do(jobs.documents({number: None}))[number].payload

    def _place(self, expected: int | None, job: NewJob) -> None:
        try:
            actual = self.store.put(job)
        except DuplicateJob:
            actual = None
            # On PostgreSQL numbers come from a sequence, which a refused enqueue advances.
            if self.kind != "postgres":
                self.model.numbers -= 1

        assert expected == actual

    @rule(keep=st.sampled_from([1, 5]))
    def prune(self, keep: int) -> None:
        """Ended jobs are deleted."""
        found = self.store.do(retention.survey(0, retention.RetentionTimes(seconds(keep), None), now=self.store.now))

        assert self.model.prune(keep) == self.store.do(retention.prune(found))
        self.claims = [claim for claim in self.claims if claim.id in self.model.jobs]

    @rule(data=st.data(), count=st.integers(1, 4), queues=st.sampled_from([None, None, ("a",), ("b",)]))
    def claim(self, data: st.DataObject, count: int, queues: tuple[str, ...] | None) -> None:
        """Claim jobs for a worker, alive or not."""
        worker = data.draw(st.sampled_from(self.known))
        expected, known = self.model.claim(worker, count, queues or QUEUES)
        claimed: Claimed = self.store.claimed(count, worker=worker, queues=queues)

        assert (expected, known) == ([claim.id for claim in claimed.claims], claimed.known)
        newest = max((claim.lease_id for claim in self.claims), default=0)
        leases = [claim.lease_id for claim in claimed.claims]
        assert leases == sorted(set(leases))
        assert all(lease > newest for lease in leases)
        for claim in claimed.claims:
            self.model.hold(claim.id, claim.lease_id, worker)
            assert (self.model.jobs[claim.id].attempt, worker) == (claim.attempt, claim.worker_id)
        self.claims += claimed.claims

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), size=st.integers(1, 3), delay=st.sampled_from([0, 3]))
    def settle(self, data: st.DataObject, size: int, delay: int) -> None:
        """Workers settle attempts together: present ones, lost ones, and some for the second time."""
        recent = self.claims[-6:]
        chosen = data.draw(st.lists(st.sampled_from(recent), min_size=1, max_size=size, unique_by=id))
        hows = [data.draw(st.sampled_from(ENDINGS)) for _ in chosen]
        endings = [
            Ending(HeldLease(claim.id, claim.lease_id), how, delay) for claim, how in zip(chosen, hows, strict=True)
        ]
        settled, lost = self.model.settle(endings)
        answer = self.store.settle(*[(claim, outcome(how, delay)) for claim, how in zip(chosen, hows, strict=True)])

        assert (settled, lost) == ({each.lease_id for each in answer.moved}, answer.lost)
        assert len(answer.moved) == len(settled)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), span=st.sampled_from([1, 5, 40]))
    def suspend(self, data: st.DataObject, span: int) -> None:
        """Suspend an attempt until it is answered from outside."""
        claim = data.draw(st.sampled_from(self.claims[-3:]))
        settled, lost = self.model.settle([Ending(HeldLease(claim.id, claim.lease_id), "suspend", span)])
        answer = self.store.settle((claim, outcome("suspend", span)))

        assert (settled, lost) == ({each.lease_id for each in answer.moved}, answer.lost)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=st.sampled_from(["success", "failure", "fatal"]))
    def answer(self, data: st.DataObject, how: str) -> None:
        """Answer an attempt from outside, in any state."""
        claim = data.draw(st.sampled_from(self.claims[-6:]))
        try:
            answered = self.store.answer(claim, outcome(how, 0))
        except LeaseLost:
            answered = None

        assert self.model.answer(HeldLease(claim.id, claim.lease_id), how) == answered

    @rule()
    def lapse(self) -> None:
        """End the expired waits."""
        expected = self.model.overdue()
        moved = [each.job_id for each in self.store.lapse()]
        self.model.lapse(moved)

        assert expected == set(moved)

    @rule(count=st.integers(1, 3), how=st.sampled_from(["success", "failure", "fatal"]))
    def work(self, count: int, how: str) -> None:
        """Claim and settle jobs at once by a healthy worker, so that walks are long."""
        worker = self.store.worker("healthy:1")
        self.model.workers[worker] = self.model.after(15)
        self._work(worker, count, how)

    def _work(self, worker: int, count: int, how: str) -> int:
        expected, _known = self.model.claim(worker, count, QUEUES)
        claims = self.store.claim(count, worker=worker)
        assert expected == [claim.id for claim in claims]
        for claim in claims:
            self.model.hold(claim.id, claim.lease_id, worker)
        self.claims += claims
        settled, _lost = self.model.settle([Ending(HeldLease(claim.id, claim.lease_id), how) for claim in claims])
        answer = self.store.settle(*[(claim, outcome(how, 0)) for claim in claims])
        assert (settled, frozenset()) == ({each.lease_id for each in answer.moved}, answer.lost)
        return len(claims)

    @rule(data=st.data(), life=st.sampled_from([1, 15, 40]))
    def beat(self, data: st.DataObject, life: int) -> None:
        """Send the heartbeat of a worker, perhaps of one that was swept."""
        worker = data.draw(st.sampled_from(self.known))
        pulse = self.store.beat(worker, seconds(life))

        assert self.model.beat(worker, life) == (pulse.alive, pulse.leases)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Stop a worker."""
        worker = data.draw(st.sampled_from(self.known))

        assert self.model.leave(worker) == set(self.store.leave(worker))

    @rule(budget=st.sampled_from([1, 100]))
    def sweep(self, budget: int) -> None:
        """Sweep the jobs of dead workers."""
        assert self.model.sweep(budget) == {each.job_id for each in self.store.sweep(budget)}

    @rule(span=st.sampled_from([1, 1, 2, 5, 16]))
    def wait(self, span: int) -> None:
        """Advance the clock; a worker without a heartbeat counts as crashed."""
        self.store.wait(span)
        self.model.now = self.store.now

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel a job."""
        number = data.draw(st.sampled_from(self._recent()))

        assert self.model.cancel(number) == self.store.cancel(number)

    @rule(queue=st.sampled_from(QUEUES), most=st.sampled_from([None, 1, 1, 2, 3]))
    def limit(self, queue: str, most: int | None) -> None:
        """Change the concurrency limit of a queue."""
        self.store.do(queues.change(queue, QueueChange(concurrency=most), now=self.store.now))
        self.model.limits.pop(queue, None)
        if most is not None:
            self.model.limits[queue] = most
        self.most[queue] = self.model.running(queue)

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        """Pause a queue, or resume it."""
        self.store.do(queues.change(queue, QueueChange(paused=paused), now=self.store.now))
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    @precondition(lambda self: self._catching())
    @rule()
    def end_a_catch(self) -> None:
        """End the latest catch job, so that its parent may be started again."""
        number = self._catching()[-1]

        assert self.model.cancel(number) == self.store.cancel(number)

    def _catching(self) -> list[int]:
        return [job.id for job in self.model.jobs.values() if job.parent and job.state not in FINAL]

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Retry a job."""
        number = data.draw(st.sampled_from(self._recent()))
        try:
            self.store.retry(number)
        except IllegalMove:
            possible = False
        else:
            possible = True

        assert self.model.retry(number) == possible

    @rule(data=st.data(), dry_first=st.booleans())
    def redrive(self, data: st.DataObject, dry_first: bool) -> None:
        """Redrive all dead jobs, or a selection."""
        every = sorted(self.model.jobs)
        some = data.draw(st.none() | st.sets(st.sampled_from(self._recent()))) if every else None
        wanted = Filter(ids=None if some is None else tuple(sorted(some)), limit=1000)
        dry = self.store.redrive(wanted, dry_run=True) if dry_first else None
        done: BulkResult = self.store.redrive(wanted)

        assert dry in (None, done)
        assert tuple(self.model.redrive(every if some is None else some)) == done.ids
        assert sorted(every if some is None else some) == sorted([*done.ids, *(number for number, _ in done.kept)])

    def _recent(self) -> list[int]:
        """Return the latest jobs, so that several steps concern one family."""
        return sorted(self.model.jobs)[-3:]

    # ----------------------------------------------------------------------------------------------- invariants

    @invariant()
    def it_holds(self) -> None:
        """Compare the store with the model, and check the invariants."""
        self.rows = self.store.jobs()
        self._equals_the_model()
        self._a_lease_has_one_job()
        self._attempts_are_bounded()
        self._one_death_is_caught_once()
        self._what_is_stored_is_what_happens()
        self._limits_hold()
        assert () == self.store.do(checks.check()).findings

    def _equals_the_model(self) -> None:
        """No job has vanished, and none has changed but by what was done to it."""
        expected = {number: job.row for number, job in self.model.jobs.items()}
        actual = {
            row.id: (
                row.state.value, row.hold, row.scheduled_at, row.attempt, row.failures, row.crashes, row.snoozes,
                row.redrives, row.lease_id, row.worker_id, row.parent_id, row.caught_at, row.finished_at,
            )
            for row in self.rows
        }  # fmt: skip

        assert expected == actual

    def _a_lease_has_one_job(self) -> None:
        """No lease is held twice, and a job has one exactly if an attempt of it is open."""
        leases = Counter(row.lease_id for row in self.rows if row.lease_id is not None)

        assert all(count == 1 for count in leases.values())
        assert len(leases) == sum(row.state.value in ("running", "waiting") for row in self.rows)

    def _limits_hold(self) -> None:
        """No more jobs of a queue run than its limit, or than ran when that was set."""
        for queue, limit in self.model.limits.items():
            running = sum(row.state.value == "running" and row.queue == queue for row in self.rows)
            assert running <= max(limit, self.most[queue])
            self.most[queue] = running

    def _attempts_are_bounded(self) -> None:
        """No job has failed more often than its policy allows, with what operators have forgiven."""
        for job in self.model.jobs.values():
            allowed = len(job.kind.delays) + 1 + job.forgiven
            failures = sum(line == "failed" for line in job.closed.values())
            assert job.parent is not None or failures <= allowed

    def _one_death_is_caught_once(self) -> None:
        """Dead jobs have at most one catch job that is not final, and are caught by exactly one."""
        for job in self.model.jobs.values():
            children = [row for row in self.rows if row.parent_id == job.id]
            assert sum(row.state.value not in FINAL for row in children) <= 1
            # A catch job that has succeeded may have been deleted before its parent.
            assert sum(row.state.value == "succeeded" for row in children) <= (job.caught is not None)

    def _what_is_stored_is_what_happens(self) -> None:
        """Jobs that wait for a retry are due exactly at the time in their history."""
        waiting = [row for row in self.rows if row.hold is Hold.RETRY]
        for row in waiting[-2:]:
            line = self.store.history(row.id)[-1]
            assert line.delay is not None
            assert row.scheduled_at == line.finished_at + line.delay

    def teardown(self) -> None:
        """Finish every job that is not final, and compare the histories."""
        try:
            if self.known:
                self._finish()
                self._compare_histories()
        finally:
            self.opened.close()

    def _finish(self) -> None:
        for queue in QUEUES:
            self.limit(queue, None)
            self.pause(queue, paused=False)
        for _ in range(len(self.model.jobs) + 5):
            self.wait(1000)
            self.sweep(100)
            self.lapse()
            worker = self.store.worker("last:1")
            self.model.workers[worker] = self.model.after(15)
            self._work(worker, 100, "success")
            # A wait that has just expired is retried a moment later, so a round without a claim is not the last one.
            if {row.state.value for row in self.rows} <= set(FINAL):
                break
        self.it_holds()
        assert {row.state.value for row in self.rows} <= set(FINAL)

    def _compare_histories(self) -> None:
        for number, job in self.model.jobs.items():
            closed = {line.lease_id: line.outcome.value for line in self.store.history(number)}
            assert job.closed == closed


TestMemory = pytest.mark.slow(walks(StoreMachine, "memory", sized(80, 200), steps=40))
TestFile = walks(StoreMachine, "file", 80, steps=40)
TestTurso = walks(StoreMachine, "turso", 5, steps=40)
TestPostgres = walks(StoreMachine, "postgres", 20, steps=40)
