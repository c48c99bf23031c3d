"""Durable retries: when the next attempt is due, when there is none, and what is stored about it."""

from __future__ import annotations

import random  # noqa: TID251 - a seeded sequence of samples is the subject of D08
from datetime import timedelta
from itertools import pairwise
from statistics import fmean

import pytest

from redrive.app.attempts.context import Context
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Failed
from redrive.engine.records import Hold
from redrive.errors import RetryAfter, StoreError
from redrive.policy import Backoff, Failure, History, Policy, Retry, Rule
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import boom, everything, execute

MILLISECOND = timedelta(milliseconds=1)


def seconds(count: float) -> timedelta:
    """Return a span of so many seconds."""
    return timedelta(seconds=count)


def exponential(initial: str, maximum: str, factor: float, *, attempts: int) -> Policy:
    """Return a policy that backs off exponentially, without jitter."""
    return Policy(attempts=attempts, backoff=Backoff.exponential(initial, maximum, factor), jitter="none")


class ValidationError(Exception):
    """An error that must not be retried."""


class MissingField(ValidationError):
    """A subclass of an error that must not be retried."""


@pytest.fixture
def enqueue(app):
    """Return a function that enqueues a job under a policy, with a handler that is never called."""

    def put(retry):
        @app.task(retry=retry)
        def work() -> None: ...

        return work.enqueue()

    return put


@pytest.mark.case("D01")
def test_ten_retries_double_up_to_the_cap(app, clock, manual_worker, enqueue):
    """Under "10 5s 1m" a failing job runs 11 times, 5, 10, 20, 40 and six times 60 s apart, and never early."""
    job = enqueue("10 5s 1m")
    due = app.task(name="due")(lambda: None)
    delays = []
    while True:
        failed_at = clock.now()
        manual_worker.end(manual_worker.take(), boom())
        if job.refresh().state is State.DEAD:
            break
        delays.append(job.record.scheduled_at - failed_at)
        clock.advance(delays[-1] - MILLISECOND)

        assert () == manual_worker.claim(2)
        assert [due.enqueue().id] == [claim.id for claim in manual_worker.claim(2)]

        clock.advance(MILLISECOND)

    assert [5, 10, 20, 40, 60, 60, 60, 60, 60, 60] == [delay.total_seconds() for delay in delays]
    assert list(range(1, 12)) == [attempt.number for attempt in job.attempts]
    assert [*delays, None] == [attempt.delay for attempt in job.attempts]


@pytest.mark.case("D01")
@pytest.mark.parametrize("statement", ["INSERT ON redrive_attempts", "UPDATE ON redrive_jobs"])
def test_a_failure_and_its_retry_are_one_transaction(app, manual_worker, enqueue, statement):
    """If one half of a failure cannot be written, the other half is not written either; a later try writes both."""
    job = enqueue("10 5s 1m")
    claim = manual_worker.take()
    before = everything(app)
    execute(app, f"CREATE TRIGGER refuse AFTER {statement} BEGIN SELECT RAISE(ABORT, 'refused'); END")
    with pytest.raises(StoreError, match="refused"):
        manual_worker.end(claim, boom())

    assert before == everything(app)

    execute(app, "DROP TRIGGER refuse")
    manual_worker.end(claim, boom())

    assert (State.READY, 1) == (job.refresh().state, len(job.attempts))


@pytest.mark.case("D02")
def test_a_deadline_ends_a_fixed_delay(app, clock, manual_worker, enqueue):
    """Of 4 attempts 30 s apart within 90 s, the second one fails at 91 s and is the last."""
    began = clock.now()
    backoff = Backoff.constant("30s")
    job = enqueue(Policy(attempts=4, deadline="90s", backoff=backoff, jitter="none"))
    manual_worker.end(manual_worker.take(), boom())

    assert (State.READY, began + seconds(30)) == (job.refresh().state, job.record.scheduled_at)

    clock.advance("30s")
    second = manual_worker.take()
    clock.advance("61s")
    manual_worker.end(second, boom())

    assert (State.DEAD, began + seconds(91)) == (job.refresh().state, job.record.finished_at)
    assert [(1, "backoff"), (2, "deadline")] == [(attempt.number, attempt.rule) for attempt in job.attempts]


@pytest.mark.case("D03")
def test_a_delay_counts_from_the_failure(clock, manual_worker, enqueue):
    """With base 40 s, factor 3, cap 90 s and a failure at 50 s the attempts are due at 0, 40 and 140 s."""
    began = clock.now()
    job = enqueue(exponential("40s", "90s", 3, attempts=3))
    manual_worker.end(manual_worker.take(), boom())

    assert began + seconds(40) == job.refresh().record.scheduled_at

    clock.advance("40s")
    second = manual_worker.take()
    clock.advance("10s")
    manual_worker.end(second, boom())

    assert began + seconds(140) == job.refresh().record.scheduled_at

    clock.advance("90s")
    manual_worker.end(manual_worker.take(), boom())

    assert (State.DEAD, 3) == (job.refresh().state, len(job.attempts))


@pytest.mark.case("D05")
def test_the_error_dictates_the_delay(app, clock):
    """After RetryAfter("15m") a job runs again in 15 min; its attempt keeps the computed 2 s and the reason."""

    @app.task(retry="3 2s")
    def work() -> None:
        raise RetryAfter("15m", "503")

    job = work.enqueue()
    drained = drain(app, within="1m")
    (attempt,) = job.attempts

    assert clock.now() + timedelta(minutes=15) == job.refresh().record.scheduled_at == drained.next_due_at
    assert (seconds(2), timedelta(minutes=15)) == (attempt.nominal, attempt.delay)
    assert ("hint", "RETRY_AFTER", "503") == (attempt.rule, attempt.reason, attempt.error)


@pytest.mark.case("D06")
@pytest.mark.parametrize("named", [ValidationError, f"{__name__}.ValidationError"], ids=["class", "name"])
@pytest.mark.parametrize("raised", [ValidationError, MissingField], ids=["itself", "subclass"])
def test_an_error_that_is_never_retried_ends_the_job(app, manual_worker, named, raised):
    """Of 25 attempts one is made where a rule names the error or a base of it, by class or by name."""

    @app.task(retry=Policy(attempts=25, rules=[Rule(on=named, attempts=1)]))
    def work() -> None:
        raise raised("no name")

    job = work.enqueue()
    drain(app)
    (attempt,) = job.attempts

    assert (State.DEAD, None) == (job.refresh().state, manual_worker.look().rest_for)
    assert f"rule 1 ({__name__}.ValidationError)" == attempt.rule
    assert (f"{__name__}.{raised.__name__}", None) == (attempt.error_type, attempt.delay)
    assert f"1 of 1 attempts failed that {attempt.rule} allows" == job.record.note


@pytest.mark.case("D06")
def test_a_stored_type_name_is_enough(manual_worker, enqueue):
    """Errors of a class that no longer exists still match the rule that names it."""
    job = enqueue(Policy(attempts=25, rules=[Rule(on="old.ValidationError", attempts=1)]))
    manual_worker.end(
        manual_worker.take(), Failed(Failure(("old.MissingField", "old.ValidationError", "builtins.Exception")))
    )

    assert (State.DEAD, 1) == (job.refresh().state, len(job.attempts))


FULL_JITTER = Policy(attempts=11, backoff=Backoff.exponential("1s", "30s"), jitter="full").durable()


def draws(seed: int, clock) -> list[tuple[float, float]]:
    """10,000 delays of retries 1 to 10, each with its bound, in seconds."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(1000):
        for retry in range(1, 11):
            decided = FULL_JITTER.decide(History(retry, clock.now()), boom().failure, clock.now(), rng.random())
            assert isinstance(decided, Retry)
            drawn.append((decided.delay.total_seconds(), min(30.0, 2.0 ** (retry - 1))))
    return drawn


@pytest.mark.case("D08")
def test_full_jitter_stays_in_its_bounds(clock):
    """10,000 delays with full jitter lie between 0 and the capped backoff, average half of it, and repeat by seed."""
    drawn = draws(7, clock)

    assert [] == [(delay, bound) for delay, bound in drawn if not 0 <= delay <= bound]
    assert pytest.approx(0.5, rel=0.02) == fmean(delay / bound for delay, bound in drawn)
    assert drawn == draws(7, clock)


@pytest.mark.case("D08")
def test_a_drawn_delay_is_stored_once(app, other_app, clock, manual_worker, enqueue):
    """Retries are due the drawn delay after the failure, however often and by whichever process they are read."""
    job = enqueue(FULL_JITTER)
    clock.advance("1m")
    claim = manual_worker.take()
    manual_worker.end(claim, boom(), sample=0.3)
    due = clock.now() + seconds(0.3)
    clock.advance(MILLISECOND)

    assert [seconds(0.3)] == [attempt.delay for attempt in job.attempts]
    assert [due] * 4 == [each.job(job.id).record.scheduled_at for each in (app, other_app) * 2]


@pytest.mark.case("D09")
def test_a_retry_past_the_deadline_is_not_scheduled(app, clock):
    """Jobs that fail 3 s into their deadline of 10 s and would wait 20 s are dead at once."""
    job = _slow_failure(app, clock, over_deadline="give_up")
    drain(app)

    assert (State.DEAD, seconds(3)) == (job.refresh().state, job.record.finished_at - job.record.started_at)
    assert ["deadline"] == [attempt.rule for attempt in job.attempts]


@pytest.mark.case("D09")
def test_a_wait_can_be_cut_at_the_deadline(app, clock):
    """With over_deadline="truncate" the same job waits the remaining 7 s, and then dies without being called again."""
    job = _slow_failure(app, clock, over_deadline="truncate")
    drain(app, within="5s")

    assert seconds(10) == job.refresh().record.scheduled_at - job.record.started_at

    drain(app)

    assert (State.DEAD, "DEADLINE") == (job.refresh().state, job.record.reason)
    assert [seconds(7)] == [attempt.delay for attempt in job.attempts]


def _slow_failure(app, clock, *, over_deadline: str):
    """Return a job that takes 3 s to fail, has 10 s in all, and would wait 20 s."""
    policy = exponential("20s", "20s", 2, attempts=5).with_(deadline="10s", over_deadline=over_deadline)

    @app.task(retry=policy)
    def work() -> None:
        clock.advance("3s")
        raise RuntimeError("boom")

    return work.enqueue()


@pytest.mark.case("D09")
def test_no_attempt_starts_after_the_deadline(app, clock):
    """Retries that were due in time are never started if all workers were down until the deadline had passed."""
    ran = []
    policy = exponential("2s", "2s", 2, attempts=5).with_(deadline="10s")

    @app.task(retry=policy)
    def work(context: Context) -> None:
        ran.append(context.attempt)
        raise RuntimeError("boom")

    job = work.enqueue()
    drain(app, within="0s")

    assert (State.READY, Hold.RETRY) == (job.refresh().state, job.record.hold)

    clock.advance("1m")
    drain(app)

    assert ([1], State.DEAD, "DEADLINE") == (ran, job.refresh().state, job.record.reason)
    assert "the deadline of 10s had passed before the attempt could start" == job.record.note


@pytest.mark.case("I7")
def test_stored_delays_are_the_delays_that_happen(app):
    """Each retry of a drained job starts exactly when its stored delay has passed, and each delay was drawn once."""
    samples = []

    def sample() -> float:
        samples.append(0.1 * len(samples))
        return samples[-1]

    @app.task(retry=FULL_JITTER)
    def work() -> None:
        raise RuntimeError("boom")

    job = work.enqueue()
    drain(app, sample=sample)
    attempts = job.attempts
    waits = [later.started_at - sooner.finished_at for sooner, later in pairwise(attempts)]

    assert 11 == len(samples) == len(attempts)
    assert waits == [attempt.delay for attempt in attempts[:-1]]
    assert [attempt.nominal * drawn for attempt, drawn in zip(attempts[:-1], samples, strict=False)] == waits


@pytest.mark.case("I7")
def test_a_deploy_changes_no_delay(app, clock, manual_worker):
    """Policy changes while a job waits change neither the stored due time nor the delays that come after it."""

    @app.task(retry="2 5s")
    def work() -> None: ...

    job = work.enqueue()
    manual_worker.end(manual_worker.take(), boom())
    del app.tasks["work"]

    @app.task(name="work", retry="9 1h")
    def deployed() -> None: ...

    assert clock.now() + seconds(5) == job.refresh().record.scheduled_at

    clock.advance("5s")
    manual_worker.end(manual_worker.take(), boom())

    assert clock.now() + seconds(10) == job.refresh().record.scheduled_at
