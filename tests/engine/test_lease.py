"""How long a worker is believed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.engine.lease import GRACE, POISON_LIMIT, UNKNOWN_TASK_DELAY, UNREADABLE_FOR, UNREADABLE_LOOK, LeaseTerms
from redrive.errors import ConfigurationError
from tests.engine.helpers import seconds


def test_the_default_terms_survive_two_lost_heartbeats():
    """By default a worker beats every 5 s and is believed for 15 s."""
    terms = LeaseTerms()

    assert (seconds(5), seconds(15)) == (terms.heartbeat_every, terms.lease_for)


def test_by_default_the_jobs_of_a_dead_worker_run_again_within_20_seconds():
    """By default, the lease and one sweep interval together take at most the promised 20 s."""
    terms = LeaseTerms()

    assert seconds(20) >= terms.lease_for + terms.heartbeat_every


@pytest.mark.parametrize("every", [timedelta(0), seconds(-1)], ids=str)
def test_a_heartbeat_takes_time(every: timedelta):
    """Heartbeat intervals that are not positive are refused, and the message shows them."""
    with pytest.raises(ConfigurationError) as refusal:
        LeaseTerms(heartbeat_every=every)

    assert f"heartbeat_every must be positive, got {every}" == str(refusal.value)


def test_a_lease_shorter_than_two_heartbeats_is_refused():
    """Terms under which one late heartbeat would cost a healthy worker its jobs are refused."""
    with pytest.raises(ConfigurationError) as refusal:
        LeaseTerms(heartbeat_every=seconds(5), lease_for=seconds(9))

    assert (
        "lease_for (0:00:09) must be at least twice heartbeat_every (0:00:05): "
        "otherwise one late heartbeat makes a healthy worker lose its jobs"
    ) == str(refusal.value)


def test_a_lease_of_exactly_two_heartbeats_is_accepted():
    """Leases of two heartbeats are the shortest that are accepted."""
    assert seconds(10) == LeaseTerms(heartbeat_every=seconds(5), lease_for=seconds(10)).lease_for


def test_the_lease_terms_of_the_specification_are_accepted():
    """Three crashes poison a job, an attempt has 10 s of grace, and an unknown task comes back after 15 s."""
    assert (3, seconds(10), seconds(15)) == (POISON_LIMIT, GRACE, UNKNOWN_TASK_DELAY)
    assert (seconds(60), seconds(900)) == (UNREADABLE_LOOK, UNREADABLE_FOR)
