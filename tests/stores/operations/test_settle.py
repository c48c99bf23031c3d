"""Settling and sweeping, step by step: the statements, their order, and the use of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.engine.frozen import UnreadablePolicy
from redrive.engine.lease import ATTEMPT_LIMIT, GRACE
from redrive.engine.lifecycle import State
from redrive.engine.outcome import Expired, Released, Succeeded
from redrive.engine.records import AttemptOutcome, AttemptRecord, Claim, Enqueue
from redrive.engine.settle import decide
from redrive.engine.topics import NewTopicEvent, Publish
from redrive.stores.operations import leases
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.query import Operation, Query
from tests.engine.helpers import CATCHING, claim, policy
from tests.stores.helpers import T0, failed, new, seconds
from tests.stores.operations.conversing import CLOCK, converse, names


def settling(*endings: tuple[Claim, Any]) -> Operation[Settled]:
    """Return the operation that settles these endings."""
    return leases.settle([Ending(*each, 0.0) for each in endings])


def of(*numbers: int) -> list[Claim]:
    """Return claims of jobs 1, 2, 3 ... under leases 11, 12, 13 ..."""
    return [claim(id=number, lease_id=10 + number) for number in numbers]


EFFECTS = {
    "nothing": ((), False),
    "a job": ((Enqueue(7, new()),), True),
    "an event": ((Publish(NewTopicEvent("pay", b"1", "P", 1)),), True),
}


@pytest.mark.parametrize("what", EFFECTS)
def test_a_success_wakes_workers_if_it_makes_work_for_them(what: str):
    """What a handler enqueues or publishes is for any worker; the end of its own attempt is for none."""
    effects, wakes = EFFECTS[what]

    assert wakes == settling((claim(), Succeeded(effects=effects))).wakes
    assert wakes == leases.settle_one(Ending(claim(), Succeeded(effects=effects), 0.0)).wakes


def test_an_end_that_its_handler_has_written_is_not_written_again():
    """It is counted with the others; alone it needs no statement, but for handlers that have stopped."""
    a, b = of(1, 2)
    written = decide(a, Succeeded(b"1"), T0, 0.0)
    done = Succeeded(b"1", written=written)

    settled, asked = converse(settling((a, done), (b, Succeeded())), CLOCK, [(12,)])
    assert ([2, 1], frozenset()) == ([each.job_id for each in settled.moved], settled.lost)
    assert ["clock", "settle_succeeded"] == names(asked)

    with pytest.raises(StopIteration) as ended:
        next(settling((a, done)).steps)
    assert (written,) == ended.value.value.moved

    _, stopped = converse(leases.settle([Ending(a, done, 0.0)], stopped={9}), [])
    assert [Query("unstopped_drop", {"lease_ids": [9]})] == stopped


@pytest.mark.parametrize("result", [None, b"1"])
def test_a_handler_completes_its_job_by_one_statement(result: bytes | None):
    """It takes the instant itself, and the settlement has what the worker estimates."""
    ending = Ending(claim(id=1, lease_id=11), Succeeded(result), 0.0)
    settled, asked = converse(leases.settle_one(ending, about=T0), [()])

    assert decide(ending.claim, ending.outcome, T0, 0.0) == settled
    assert [Query("complete", {"job_id": 1, "lease_id": 11, "result": result, "now": None})] == asked


def test_a_handler_without_a_lease_completes_nothing():
    """By one statement, or as a settle."""
    ending = Ending(claim(id=1, lease_id=11), Succeeded(), 0.0)
    lost = [
        converse(leases.settle_one(ending, about=T0), [])[0],
        converse(leases.settle_one(ending, now=T0), [])[0],
        converse(leases.settle_one(ending), CLOCK, [], [], [])[0],
    ]

    assert [None, None, None] == lost


def test_what_belongs_to_the_end_of_a_job_is_written_with_it():
    """A job with a key ends like any other."""
    keyed = claim(id=1, lease_id=11, key="k")
    settled, asked = converse(leases.settle_one(Ending(keyed, Succeeded(), 0.0), about=T0), CLOCK, [(11,)], [])

    assert (State.SUCCEEDED, ["clock", "settle_succeeded", "keys_drop"]) == (settled.state, names(asked))


def test_successes_are_written_together():
    """Plain successes need one statement, whatever their number, and their results another."""
    a, b, c = of(1, 2, 3)
    settled, asked = converse(
        settling((a, Succeeded(b"1")), (b, Succeeded()), (c, Succeeded(b"3"))), CLOCK, [(11,), (12,), (13,)], []
    )

    assert ([1, 2, 3], frozenset()) == ([each.job_id for each in settled.moved], settled.lost)
    assert ["clock", "settle_succeeded", "result_put"] == names(asked)
    assert {"now": T0, "job_ids": [1, 2, 3], "lease_ids": [11, 12, 13]} == asked[1].params
    assert [{"job_id": 1, "result": b"1"}, {"job_id": 3, "result": b"3"}] == asked[2].many


def test_a_stale_success_leaves_no_result():
    """Successes under a stale lease are lost: no result is written, and the history is read."""
    a, b = of(1, 2)
    operation = settling((a, Succeeded(b"1")), (b, Succeeded(b"2")))
    settled, asked = converse(operation, CLOCK, [(12,)], [], [], [])

    assert ([2], {11}) == ([each.job_id for each in settled.moved], settled.lost)
    assert [{"job_id": 2, "result": b"2"}] == asked[2].many
    assert Query("closed_before", {"job_ids": [1], "lease_ids": [11]}) == asked[3]


def test_only_the_current_lease_of_a_job_counts():
    """If a batch holds a stale and the current lease of one job, the current one's result is written."""
    old, present = claim(id=1, lease_id=11), claim(id=1, lease_id=12)
    operation = settling((old, Succeeded(b"old")), (present, Succeeded(b"new")))
    settled, asked = converse(operation, CLOCK, [(12,)], [], [], [])

    assert ([12], {11}) == ([each.lease_id for each in settled.moved], settled.lost)
    assert [{"job_id": 1, "result": b"new"}] == asked[2].many


def test_successes_without_results_write_no_results():
    """If no handler returned a value, no result is written."""
    _, asked = converse(settling((of(1)[0], Succeeded())), CLOCK, [(11,)])

    assert "result_put" not in names(asked)


def test_a_failure_is_written_with_its_history():
    """Settling a failure writes the job and its history line only."""
    settled, asked = converse(settling((claim(), failed())), CLOCK, [(41,)], [])

    assert ["clock", "settle", "attempt_insert"] == names(asked)
    (row,) = asked[1].many
    assert row == {
        "job_id": 7,
        "lease_id": 41,
        "state": State.READY,
        "hold": "retry",
        "note": "retry in 1s (backoff)",
        "attempt": 1,
        "failures": 1,
        "crashes": 0,
        "snoozes": 0,
        "by_rule": None,
        "scheduled_at": T0 + seconds(1),
        "last_delay": seconds(1),
        "unreadable_at": None,
        "finished_at": None,
        "unstarted": False,
        "reason": "ERROR",
        "error": "boom",
        "before": State.RUNNING,
        "fingerprint": settled.moved[0].seen.fingerprint,
    }
    assert {each: getattr(settled.moved[0].closed, each) for each in AttemptRecord.__struct_fields__} == asked[2].many[
        0
    ]


def test_a_death_is_written_with_its_catch_job():
    """Settling a final failure writes the job, its history line and its catch job in one transaction."""
    parent = claim(policy=policy("0 catch mend"))
    _, asked = converse(settling((parent, failed())), CLOCK, [(41,)], [], [(9, 9)], [])

    assert ["clock", "settle", "attempt_insert", "take", "policy_put", "job_insert"] == names(asked)
    assert (State.DEAD, T0) == (asked[1].many[0]["state"], asked[1].many[0]["finished_at"])
    (row,) = asked[4].queries[-1].many
    assert (9, "mend", "mail", 3, 7) == tuple(row[each] for each in ("id", "task", "queue", "priority", "parent_id"))


def test_a_catch_job_s_success_stamps_its_parent():
    """Settling the success of a catch job writes the job with its line, its result and the parent's stamp."""
    settled, asked = converse(settling((CATCHING, Succeeded(b"1"))), CLOCK, [(41,)], [], [])

    assert ["clock", "settle", "result_put", "caught"] == names(asked)
    assert [{"job_id": 3, "now": T0}] == asked[3].many
    assert 3 == settled.moved[0].caught


@pytest.mark.parametrize("outcome", [Released("shutdown"), Expired()], ids=["release", "expired"])
def test_a_release_writes_no_history(outcome: object):
    """Settling a released or never started attempt writes the job only."""
    assert ["clock", "settle"] == names(converse(settling((claim(), outcome)), CLOCK, [(41,)])[1])


def test_a_lost_lease_writes_nothing():
    """For a stale lease, neither history nor catch job is written; only the history is read."""
    parent = claim(policy=policy("0 catch mend"))
    settled, asked = converse(settling((parent, failed())), CLOCK, [], [], [])

    assert Settled((), frozenset({41})) == settled
    assert ["clock", "settle", "closed_before", "unstopped_drop"] == names(asked)


@pytest.mark.parametrize(
    ("lines", "lost"), [([(41, "failed")], False), ([(41, "succeeded")], True), ([(40, "failed")], True), ([], True)]
)
def test_a_lost_lease_is_distinguished_from_a_lost_reply(lines: list[Any], lost: bool):
    """Endings that were already written under the same lease are settled, all others are lost."""
    settled, _ = converse(settling((claim(), failed())), CLOCK, [], lines, [])

    assert (lost, not lost) == (settled.lost == {41}, len(settled.moved) == 1)


def test_an_empty_settle_reads_only_the_time():
    """Settling an empty batch writes nothing."""
    assert (Settled((), frozenset()), 1) == ((answer := converse(settling(), CLOCK))[0], len(answer[1]))


def test_a_sweep_removes_dead_workers_and_takes_their_jobs():
    """Sweeps remove dead workers and write their attempts, each guarded by its lease."""
    a, b = of(1, 2)
    moved, asked = converse(leases.sweep(9, gone={6, 4}), CLOCK, [], [a, b], [(11,)], [], [])

    assert [1] == [each.job_id for each in moved]
    assert ["clock", "workers_bury", "lost", "settle", "attempt_insert", "unstopped_put"] == names(asked)
    assert {"now": T0, "gone": [4, 6]} == asked[1].params
    assert {"now": T0, "limit_for": ATTEMPT_LIMIT, "grace": GRACE, "every": None, "budget": 9} == asked[2].params
    assert [11, 12] == [row["lease_id"] for row in asked[3].many]
    assert [(1, AttemptOutcome.LOST)] == [(row["job_id"], row["outcome"]) for row in asked[4].many]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "worker 2 fell silent during attempt 1"),
        ({"policy": policy(attempt_timeout="30s")}, "attempt 1 outlived its timeout of 30s on worker 2"),
        ({"policy": policy(attempt_timeout="31s")}, "worker 2 fell silent during attempt 1"),
        ({"policy": policy(attempt_timeout="30s"), "parent_id": 3}, "worker 2 fell silent during attempt 1"),
    ],
    ids=["no timeout", "too long", "not too long", "a catch job has none"],
)
def test_a_sweep_records_its_reason(changes: dict[str, Any], why: str):
    """Lost attempts record whether they exceeded the timeout plus grace, or their worker sent no heartbeat."""
    lost = claim(claimed_at=T0 - seconds(30) - GRACE, **changes)
    _, asked = converse(leases.sweep(9), CLOCK, [], [lost], [(41,)], [], [])

    assert why == asked[4].many[0]["error"]


def test_a_sweep_holds_unreadable_jobs():
    """Attempts with an unreadable policy are held, and the sweep continues with the next one."""
    odd, good = claim(id=1, lease_id=11, policy=UnreadablePolicy("no version 2")), claim(id=2, lease_id=12)
    moved, asked = converse(leases.sweep(9), CLOCK, [], [odd, good], [(11,)], [(12,)], [], [])

    assert [1, 2] == [each.job_id for each in moved]
    assert [("set_aside", 11), ("settle", 12)] == [(each.name, each.many[0]["lease_id"]) for each in asked[3:5]]


def test_a_sweep_with_a_known_interval_extends_leases_first():
    """Sweeps with a known interval first extend the leases by the time in which no sweep ran."""
    _, asked = converse(leases.sweep(9, every=seconds(5)), CLOCK, [], [], [])

    assert ["clock", "workers_late", "workers_bury", "lost"] == names(asked)
    assert {"now": T0, "every": seconds(5)} == asked[1].params


def test_a_sweep_of_nothing():
    """If no worker is dead, a sweep returns an empty result."""
    assert () == converse(leases.sweep(9), CLOCK, [], [])[0]
