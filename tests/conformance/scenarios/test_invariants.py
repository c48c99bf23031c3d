"""The invariants of the durable engine, on random walks through the lives of jobs.

I3 needs processes that are really killed, and stands in ``tests/acceptance``; I7 stands with the delays in
``test_retry.py``.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Released
from redrive.engine.records import AttemptOutcome, Filter
from redrive.policy import Policy, Rule
from redrive.testing import drain
from tests.conformance.scenarios.manual_workers import everything
from tests.conformance.scenarios.walk import MOVES, OUTCOMES, walking
from tests.selection import sized

# Tests of stores take the branches of these walks, with fewer operations.
pytestmark = pytest.mark.unmeasured

walks = settings(max_examples=sized(20, 40))  # on each store


@pytest.mark.case("I1")
@walks
@given(moves=MOVES)
def test_a_job_has_at_most_one_live_lease(fresh_url, moves):
    """Whatever happens, a running job has one live lease, the last given for it, and no lease id comes twice."""
    with walking(fresh_url()) as walk:
        for move in moves:
            walk.move(*move)
            given_leases = [claim.lease_id for claim in walk.held]
            latest = {claim.id: claim.lease_id for claim in walk.held}
            running = {job.id: job.lease_id for job in walk.jobs.values() if job.state is State.RUNNING}

            assert sorted(set(given_leases)) == given_leases
            assert {job_id: latest[job_id] for job_id in running} == running
            assert len(running) == len(walk.live)

        live = walk.live
        settled = walk.manual_workers[0].settle(*((claim, Released("probe")) for claim in walk.held))

        assert live == {each.lease_id: each.job_id for each in settled.moved}


@pytest.mark.case("I2")
@walks
@given(moves=MOVES)
def test_every_change_has_an_author(fresh_url, moves):
    """Jobs change only in an operation that names them: by their lease, by an operator, or by a sweep."""
    with walking(fresh_url()) as walk:
        for move in moves:
            before = walk.jobs
            walk.move(*move)
            after = walk.jobs

            assert set() == {number for number, job in before.items() if after[number] != job} - walk.named


@pytest.mark.case("I2")
@walks
@given(moves=MOVES)
def test_a_stale_lease_changes_nothing(fresh_url, moves):
    """After any walk no outcome under any lease that is not live changes any row."""
    with walking(fresh_url()) as walk:
        for move in moves:
            walk.move(*move)
        live = walk.live
        before = everything(walk.app)
        for outcome in OUTCOMES:
            walk.manual_workers[0].settle(*((claim, outcome) for claim in walk.held if claim.lease_id not in live))

        assert before == everything(walk.app)


@pytest.mark.case("I6")
@walks
@given(moves=MOVES)
def test_a_job_ends_once(fresh_url, moves):
    """No job succeeds twice, no death is caught twice, and only deaths are caught; the invariant checker agrees."""
    with walking(fresh_url()) as walk:
        for move in moves:
            walk.move(*move)
        jobs = walk.jobs
        for number, job in jobs.items():
            lines = [each.outcome for each in walk.app.job(number).attempts]
            catches = [each.state for each in jobs.values() if each.parent_id == number]

            assert (job.state is State.SUCCEEDED) == lines.count(AttemptOutcome.SUCCEEDED) <= 1
            assert (job.caught_at is not None) == catches.count(State.SUCCEEDED) <= 1
            assert not catches or job.caught_at is None or job.state is State.DEAD

        assert () == walk.app.database.verify()


def _failures(app, number: int) -> int:
    """Return the number of attempts that a job has used up: failed ones, and a crash that was the end of it."""
    used = [each for each in app.job(number).attempts if each.outcome in {AttemptOutcome.FAILED, AttemptOutcome.LOST}]
    return sum(each.rule != "crash" for each in used)


@pytest.mark.case("I4")
@walks
@given(moves=MOVES)
def test_attempts_are_bounded(fresh_url, moves):
    """Jobs use no more attempts than their policy has and operators have granted, whatever other events there are."""
    with walking(fresh_url()) as walk:
        for move in moves:
            walk.move(*move)
        jobs = [job for job in walk.jobs.values() if job.parent_id is None]
        excess = {job.id: _failures(walk.app, job.id) - job.policy.attempts - walk.granted[job.id] for job in jobs}

        assert {} == {number: attempts for number, attempts in excess.items() if attempts > 0}


@pytest.mark.case("I4")
@pytest.mark.parametrize(
    "policy",
    [
        Policy(attempts=3, jitter="none"),
        Policy(attempts=10, rules=[Rule(on=ConnectionError, attempts=3)], jitter="none"),
    ],
    ids=["policy", "rule"],
)
def test_an_operator_grants_one_attempt(app, policy):
    """Retries by an operator of a job that used up its attempts, or those of a rule, make exactly one more each."""

    @app.task(retry=policy)
    def work() -> None:
        raise ConnectionError("no")

    job = work.enqueue()
    used = []
    drain(app)
    for _ in range(3):
        used.append(len(job.attempts))
        job.retry()
        drain(app)

    assert [3, 4, 5] == used
    assert State.DEAD is job.refresh().state


@pytest.mark.case("I4")
def test_a_redrive_grants_all_attempts(app):
    """Redriven jobs have all their attempts once more."""

    @app.task(retry="2 1s")
    def work() -> None:
        raise ConnectionError("no")

    job = work.enqueue()
    drain(app)
    app.jobs.redrive(Filter(task="work"))
    drain(app)

    assert 6 == len(job.attempts)
