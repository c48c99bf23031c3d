"""The diagnosis of a database and its workers, with plain values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.machine import StrandedCount
from redrive.engine.records import Diagnosis, Hold
from redrive.stores.operations.doctor import (
    LISTED,
    READ,
    FailedInstances,
    HeldRun,
    RunningBulk,
    StuckCatch,
    UndoneInPart,
    UnreadableJobs,
    Vitals,
    diagnose,
)
from redrive.stores.operations.queues import MOST, Depth, DepthState, QueueLimits
from tests.engine.helpers import worker
from tests.stores.helpers import T0, seconds

NOW = T0 + timedelta(hours=1)
LIVE = worker(version="1.0")
DUE = Depth("mail", DepthState.DUE, 3, NOW - seconds(10))
LATER = Depth("mail", DepthState.LATER, 1, None)
PAUSED = QueueLimits("mail", paused_at=NOW - seconds(60))
FULL = QueueLimits("mail", rate_count=2, rate_for=seconds(60), begun=2, first_at=NOW - seconds(20))


def found(*checks: str, tasks: tuple[str, ...] = ("send",), **fields: Any) -> list[tuple[str, str, str | None]]:
    """Return severity, text and advice of the findings of some checks."""
    vitals = Vitals(NOW, **{"workers": (LIVE,), **fields})
    return [_plain(each) for each in diagnose(vitals, tasks, "1.0", app="shop:app") if each.check in checks]


def _plain(each: Diagnosis) -> tuple[str, str, str | None]:
    return each.severity, each.text, each.advice


def test_an_operation_that_makes_progress_is_no_problem():
    """Only an operation with a batch that failed is a finding."""
    fine = RunningBulk(7, "redrive", 10, 100, "100/s", None)
    failing = RunningBulk(8, "cancel", 0, None, None, "ValueError: x")

    assert [] == found("operations", operations=(fine,))
    assert [
        (
            "problem",
            "a batch of operation 8 (cancel) fails, and is tried again: ValueError: x",
            "redrive operations show shop:app 8, or redrive operations stop shop:app 8",
        )
    ] == found("operations", operations=(fine, failing))


def test_an_idle_database_has_no_problem():
    """Report the workers and that no job is due."""
    expected = [("ok", "1 worker is alive, of version 1.0", None), ("ok", "no job is due", None)]

    assert expected == [_plain(each) for each in diagnose(Vitals(NOW, workers=(LIVE,)), (), "1.0")]


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"journal_mode": "wal"}, []),
        ({"journal_mode": "memory"}, []),
        ({"journal_mode": "delete"}, ["problem: the journal mode of the file is delete: readers and the writer block"]),
        ({"version": "16.2", "version_number": "160002"}, []),
        ({"version": "13.9", "version_number": "130009"}, ["problem: the server is PostgreSQL 13.9"]),
        ({"read_only": "off", "synchronous_commit": "on"}, []),
        ({"read_only": "on"}, ["problem: the database is read-only"]),
        ({"synchronous_commit": "off"}, ["note: synchronous_commit is off"]),
    ],
)
def test_settings_of_the_database_are_examined(server: dict[str, str], expected: list[str]):
    """Report settings with which jobs cannot run, or can be lost."""
    lines = [f"{severity}: {text}" for severity, text, _ in found("settings", server=server)]

    assert [True] * len(expected) == [line.startswith(start) for line, start in zip(lines, expected, strict=True)]


@pytest.mark.parametrize(
    ("workers", "depths", "expected"),
    [
        ((), (), [("note", "no worker is alive", "redrive worker shop:app")]),
        ((), (LATER,), [("note", "no worker is alive", "redrive worker shop:app")]),
        ((), (DUE,), [("problem", "no worker is alive, and jobs are due", "redrive worker shop:app")]),
        (
            (worker(expires_at=NOW),),
            (DUE,),
            [("problem", "no worker is alive, and jobs are due", "redrive worker shop:app")],
        ),
        (
            (LIVE, worker(version=None)),
            (),
            [("note", "2 workers are alive, of version 1.0, unknown; this is 1.0", "finish the deployment")],
        ),
        (
            (worker(version="1.0", trouble="settling: KeyError"),),
            (),
            [
                ("ok", "1 worker is alive, of version 1.0", None),
                ("problem", "worker 9 (host:1) is in trouble: settling: KeyError", "read its log, and restart it"),
            ],
        ),
    ],
)
def test_workers_are_examined(workers: Any, depths: Any, expected: Any):
    """Report whether a worker is alive, its version, and its troubles."""
    assert expected == found("workers", workers=workers, depths=depths)


OTHERS = tuple(worker(id=20 + n, name=f"old:{n}", build="0.9", started_at=T0 - seconds(9)) for n in range(LISTED + 1))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((worker(loop_lag_for=seconds(9)),), []),
        (
            (worker(loop_lag_for=seconds(10)),),
            ["problem: the event loop of worker 9 (host:1) is blocked since 10s"],
        ),
        ((worker(unstopped=1),), ["note: worker 9 (host:1) has 1 handler that goes on after its attempt has ended"]),
        (
            (worker(unstopped=2),),
            ["note: worker 9 (host:1) has 2 handlers that go on after their attempts have ended"],
        ),
        ((worker(build="1.0"), worker(id=10, build=None)), []),
        (
            (worker(build="1.0"), worker(id=10, name="host:2", build="1.1", started_at=T0 + seconds(9))),
            ["note: 1 worker runs other code than the build 1.1, which started last: host:1 (1.0)"],
        ),
        (
            (worker(build="1.0"), worker(id=10, name="host:2", build="1.1", expires_at=NOW)),
            [],
        ),
    ],
)
def test_workers_that_are_stuck_or_run_old_code_are_named(workers: Any, expected: list[str]):
    """Blocked event loops, handlers that ignore their end, and builds that are not that of the last start."""
    vitals = Vitals(NOW, workers=tuple(replace(each, version="1.0") for each in workers))
    lines = [f"{each.severity}: {each.text}" for each in diagnose(vitals, (), "1.0") if each.check == "workers"]

    assert expected == lines[1:]


def test_many_workers_with_old_code_are_counted():
    """Their names would fill a page."""
    texts = [text for _, text, _ in found("workers", workers=(worker(build="1.0"), *OTHERS))]

    assert texts[-1].startswith("11 workers run other code than the build 1.0, which started last: old:0 (0.9), old:1")
    assert texts[-1].endswith(" and 1 more")


SILENT = worker(id=3, expires_at=NOW - seconds(30))
LOST = worker(id=3, expires_at=NOW - seconds(90))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((LIVE,), ("problem", "worker 3 has left, and still has 2 jobs", "a worker that is alive gives them back")),
        (
            (LIVE, SILENT),
            ("note", "worker 3 lost its lease 30s ago, and still has 2 jobs", "a worker that is alive gives them back"),
        ),
        (
            (LIVE, LOST),
            (
                "problem",
                "worker 3 lost its lease 1m 30s ago, and still has 2 jobs",
                "a worker that is alive gives them back",
            ),
        ),
        (
            (SILENT,),
            (
                "problem",
                "worker 3 lost its lease 30s ago, and still has 2 jobs",
                "redrive worker shop:app gives them back",
            ),
        ),
    ],
)
def test_leases_past_their_end_are_examined(workers: Any, expected: Any):
    """Report jobs of dead workers, and a problem if no living worker has given them back in time."""
    assert [expected] == found("leases", workers=workers, busy={3: 2})


def test_jobs_of_living_workers_are_no_finding():
    """Report nothing about a worker that works; a single job is one job."""
    assert [] == found("leases", busy={9: 1})
    assert "worker 3 has left, and still has 1 job" == found("leases", busy={3: 1, 9: 1})[0][1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"depths": (DUE,)}, []),
        ({"depths": (DUE,), "workers": ()}, []),
        (
            {"depths": (DUE,), "workers": (worker(queues=("slow",)),)},
            [
                (
                    "problem",
                    "no live worker serves queue 'mail', which has 3 jobs due, the oldest since 10s",
                    "redrive worker shop:app --queue mail",
                )
            ],
        ),
        (
            {"depths": (DUE,), "settings": (PAUSED,), "workers": (worker(queues=("slow",)),)},
            [
                (
                    "problem",
                    "queue 'mail' is paused since 1m, and has 3 jobs due, the oldest since 10s",
                    "redrive queues resume shop:app mail",
                )
            ],
        ),
        (
            {"depths": (LATER,), "settings": (PAUSED, QueueLimits("slow"))},
            [
                (
                    "problem",
                    "queue 'mail' is paused since 1m, and has 1 job waiting",
                    "redrive queues resume shop:app mail",
                )
            ],
        ),
        ({"settings": (PAUSED,)}, []),
        (
            {"depths": (DUE,), "settings": (FULL,)},
            [
                (
                    "note",
                    "queue 'mail' has reached its rate 2/1m, and has 3 jobs due, the oldest since 10s",
                    "redrive queues limit shop:app mail --rate none, or a higher one",
                )
            ],
        ),
        ({"depths": (LATER,), "settings": (FULL,)}, []),
        ({"depths": (DUE,), "settings": (replace(FULL, begun=1),)}, []),
        ({"depths": (DUE,), "settings": (replace(FULL, first_at=NOW - seconds(60)),)}, []),
    ],
)
def test_queues_are_examined(fields: Any, expected: Any):
    """Report queues with due jobs that no living worker serves, paused queues with jobs, and rates that hold them."""
    assert expected == found("queues", **fields)


@pytest.mark.parametrize(
    ("workers", "lanes", "expected"),
    [
        ((LIVE,), (("mail", "send"), ("mail", "print")), []),
        ((), (("mail", "send"),), []),
        (
            (worker(tasks=("print",)),),
            (("mail", "send"), ("slow", "send")),
            [
                (
                    "problem",
                    "no live worker of queues 'mail', 'slow' has the task 'send', which has waiting jobs",
                    "restart the workers with the present code",
                )
            ],
        ),
        (
            (),
            (("mail", "gone"),),
            [
                (
                    "problem",
                    "the code has no task 'gone', which has waiting jobs in queue 'mail'",
                    "deploy code that has it (aka= if it was renamed), or redrive jobs cancel shop:app --task gone",
                )
            ],
        ),
    ],
)
def test_tasks_are_examined(workers: Any, lanes: Any, expected: Any):
    """Report tasks of waiting jobs that no worker has; without a worker the present code counts."""
    assert expected == found("tasks", workers=workers, lanes=lanes)


def test_the_oldest_due_job_is_examined():
    """Report a problem if it has waited for more than five minutes; jobs of paused queues do not count."""
    old = Depth("slow", DepthState.DUE, 1, NOW - seconds(301))
    advice = "redrive jobs list shop:app --queue slow has the reasons; more workers or slots run more at once"

    assert [("ok", "the oldest due job waits since 10s, in queue 'mail'", None)] == found("oldest", depths=(DUE, LATER))
    assert [("problem", "the oldest due job waits since 5m 1s, in queue 'slow'", advice)] == found(
        "oldest", depths=(DUE, old)
    )
    assert [("ok", "no job is due, except in paused queues", None)] == found(
        "oldest", depths=(DUE,), settings=(PAUSED,)
    )
    assert [("ok", "no job is due", None)] == found("oldest", depths=(LATER,))


def test_stuck_catches_and_dead_jobs_are_examined():
    """Report each catch job that fails again and again, and the dead jobs of each queue."""
    stuck = StuckCatch(8, "recover", 7, 5)
    dead = (Depth("mail", DepthState.DEAD, 1, None), Depth("slow", DepthState.DEAD, MOST, None, is_capped=True))

    assert [
        ("problem", "catch job 8 (recover) of job 7 failed 5 times",
         "redrive jobs show shop:app 8 has the error; repair recover, then redrive jobs retry shop:app 8"),
    ] == found("catches", catches=(stuck,))  # fmt: skip
    assert [] == found("dead", depths=(Depth("mail", DepthState.SKIPPED, 1, None),))
    assert ["queue 'mail' has 1 job that gave up and was neither caught nor skipped",
            "queue 'slow' has 10,000+ jobs that gave up and were neither caught nor skipped"] == [
        text for _, text, _ in found("dead", depths=dead)
    ]  # fmt: skip


def test_failed_and_stranded_instances_are_problems():
    """Name the machines with failed transitions, and what waits for a state or an event that the code does not have."""
    failed = (FailedInstances("payment", 1, "a"), FailedInstances("order", 2000, "x\ny"))
    stranded = (
        StrandedCount("payment", "event", None, "Paid", 2),
        StrandedCount("payment", "event", None, "Paid", 1),
        StrandedCount("payment", "state", "old", None, 1),
        StrandedCount("payment", "state", "old", None, 2),
        StrandedCount("payment", "timeout", "paid", "Late", 1),
        StrandedCount("payment", "timeout", "paid", "Late", 2),
    )
    stay = "deploy code that takes it: until then the events stay, and those behind them"
    migrate = "deploy code that has it, or redrive machines migrate shop:app payment old=STATE"
    rearm = "deploy code that takes it, or redrive machines rearm shop:app payment paid"
    then = "--status failed has the errors; then redrive machines retry, skip or reset"

    assert [
        (
            "problem",
            "machine 'payment': 1 instance has a transition that failed for good, such as 'a'",
            f"redrive machines list shop:app payment {then}",
        ),
        (
            "problem",
            "machine 'order': 2,000 instances have a transition that failed for good, such as 'x\\ny'",
            f"redrive machines list shop:app order {then}",
        ),
        *(
            ("problem", f"machine 'payment': {text}, which the code does not have", advice)
            for text, advice in (
                ("2 events of the class Paid wait", stay),
                ("1 event of the class Paid waits", stay),
                ("1 instance is in the state 'old'", migrate),
                ("2 instances are in the state 'old'", migrate),
                ("1 instance in 'paid' waits for a timeout with the event Late", rearm),
                ("2 instances in 'paid' wait for a timeout with the event Late", rearm),
            )
        ),
    ] == found("machines", failed=failed, stranded=stranded)


HELD = HeldRun("checkout", "a", "step 2 was `two`", NOW - seconds(90))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), []),
        (
            (HELD,),
            [
                (
                    "problem",
                    "1 run of checkout is held since 1m 30s: step 2 was `two`",
                    "redrive runs list shop:app --workflow checkout --held, then deploy code that fits",
                )
            ],
        ),
        (
            (HELD, HELD, HeldRun("billing", "b", None, None)),
            [
                ("problem", "1 run of billing is held: no reason", None),
                ("problem", "2 runs of checkout are held since 1m 30s: step 2 was `two`", None),
            ],
        ),
        ((HELD,) * READ, [("problem", "1,000+ runs of checkout are held since 1m 30s: step 2 was `two`", None)]),
    ],
)
def test_held_runs_are_reported(held: Any, expected: Any):
    """Report the held runs of each workflow, with the reason of the one that waits longest."""
    findings = found("held", held=held)

    assert [each[:2] for each in expected] == [each[:2] for each in findings]
    assert all(advice in (None, found) for (*_, advice), (*_, found) in zip(expected, findings, strict=True))


def test_steps_that_were_not_undone_are_named():
    """Each ended run has its steps and the commands; of many runs the first ones are named."""
    one = UndoneInPart(7, "travel", "order 42", "book (1), pay (2)")
    many = [replace(one, job_id=number) for number in range(LISTED + 3)]
    ((severity, text, advice),) = found("undos", in_effect=(one,))

    assert ("problem", "run order 42 of travel has ended, and these steps were not undone: book (1), pay (2)") == (
        severity, text
    )  # fmt: skip
    assert (
        "redrive runs show shop:app 'travel/order 42' has the errors; then redrive jobs retry shop:app 7, or take each "
        "back by hand and record it, as by redrive runs supply shop:app 'travel/order 42' u1 null for step 1"
    ) == advice
    assert "3 more runs have ended with steps that were not undone" == found("undos", in_effect=tuple(many))[-1][1]
    assert [] == found("undos")


def test_jobs_that_no_worker_can_read_are_examined():
    """Name the task, the time, a job with the reason, and what releases or ends them."""
    payloads = UnreadableJobs("send", Hold.BAD_PAYLOAD, 1200, 7, NOW - seconds(60))
    policy = UnreadableJobs("print", Hold.BAD_POLICY, 1, 9, None)
    jobs, deploy = "redrive jobs", "has the reason; deploy code that reads"

    assert [
        (
            "problem",
            "1 job of task 'print' waits: no worker can read its policy",
            f"{jobs} show shop:app 9 {deploy} it, or {jobs} repolicy shop:app --task print --hold bad_policy",
        ),
        (
            "problem",
            "1,200 jobs of task 'send' wait since 1m: no worker can read their arguments",
            f"{jobs} show shop:app 7 {deploy} them, or {jobs} cancel shop:app --task send --hold bad_payload",
        ),
    ] == found("unreadable", unreadable=(payloads, policy))
