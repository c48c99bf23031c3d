"""Paths, digests and limits of recorded steps."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from redrive.engine.outcome import Held, Parked, Restarted, RunChange
from redrive.engine.records import Hold
from redrive.engine.runs import (
    CHILD_ID_BYTES,
    FAR,
    KEPT_TRIES,
    RESULT_LIMIT,
    RunFlags,
    RunRecord,
    StepError,
    StepHistory,
    StepKind,
    StepOutcome,
    StepRecord,
    StepTry,
    branch_path,
    check_gate_name,
    check_size,
    child_id,
    digest_of,
    is_far,
    kept_tries,
    next_path,
    parent_path,
    path_order,
    rows_before,
    undo_path,
)
from redrive.engine.settle import decide
from redrive.engine.steps import FailedTry, NewStep
from redrive.errors import ConfigurationError, ResultTooLarge
from redrive.policy import Failure
from tests.engine.helpers import NOW, claim, policy

ERROR = StepError(("builtins.ValueError",), "boom", "ERROR")


def test_an_error_of_a_step_is_shown_with_its_place():
    """Texts of failed steps name the place in the user's code where it is known."""
    assert ("boom", "boom (at a.py:1 in f)") == (str(ERROR), str(structs.replace(ERROR, place="a.py:1 in f")))


def test_paths_name_positions_and_branches():
    """Paths are positions from 1 and branches from 0, separated by dots."""
    branch = branch_path(next_path("", 4), 0)

    assert ["3", "4.0", "4.0.2"] == [next_path("", 3), branch, next_path(branch, 2)]
    assert [None, "4", "4.0.2"] == [parent_path("4"), parent_path("4.0.2"), parent_path("4.0.2.1.1")]


def test_paths_sort_in_the_order_of_calls():
    """Steps come in the order of their calls, then undos, then names of the gate."""
    ordered = ["2", "9", "10", "10.0.1", "10.0.2", "10.1.1", "11", "u2", "u10", "charge", "s1"]

    assert ordered == sorted(sorted(ordered), key=path_order)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.booleans())
def test_no_name_of_the_gate_can_be_a_path(parts: list[int], undo: bool):
    """Names of steps at the gate never equal a path of a workflow."""
    path = ".".join(map(str, parts))
    with pytest.raises(ConfigurationError, match="cannot be named"):
        check_gate_name(undo_path(path) if undo else path)


@pytest.mark.parametrize("name", ["charge", "u", "1a", "step 1", "²"])
def test_the_gate_takes_other_names(name: str):
    """Any other text can be the name of a step at the gate."""
    check_gate_name(name)

    assert 2 == path_order(name)[0]


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_step_at_the_gate_has_a_name(name: str):
    """Steps without a name are refused."""
    with pytest.raises(ConfigurationError, match="the name of a step is a text, not empty"):
        check_gate_name(name)


def test_the_digest_of_arguments_is_a_signed_number_of_64_bits():
    """Equal arguments have equal digests, which fit into a column of 64 bits."""
    digests = {digest_of(b"%d" % number) for number in range(100)}

    assert 100 == len(digests)
    assert all(-(2**63) <= each < 2**63 for each in digests)
    assert digest_of(b"{}") == digest_of(b"{}")


def test_a_result_over_the_limit_is_refused():
    """Results over 1 MiB are refused with their size and the limit."""
    check_size("step load (1)", None)
    check_size("step load (1)", b"x" * RESULT_LIMIT)

    with pytest.raises(
        ResultTooLarge, match=r"step load \(1\) has 1,048,577 bytes of JSON, and the limit is 1,048,576"
    ):
        check_size("step load (1)", b"x" * (RESULT_LIMIT + 1))


def test_a_step_keeps_its_last_failed_tries():
    """Rows of steps keep a limited number of failed tries, the last ones."""
    history = None
    for number in range(KEPT_TRIES + 5):
        tries = kept_tries(history, StepTry(NOW, timedelta(seconds=number), ERROR))
        history = StepHistory(NOW, tries=tries)

    assert [timedelta(seconds=number) for number in range(5, KEPT_TRIES + 5)] == [each.took for each in tries]


@pytest.mark.parametrize(("outcome", "final"), [(each, each not in {"waiting", "running"}) for each in StepOutcome])
def test_only_waiting_rows_change(outcome: StepOutcome, final: bool):
    """Rows are final unless they wait."""
    row = StepRecord(7, "1", StepKind.STEP, "charge", outcome, 41, NOW)

    assert final == row.is_final


def test_a_parked_run_is_due_at_its_earliest_wait():
    """Parked runs carry their rows, are due at their earliest wait, and leave no line in the history."""
    sleep = NewStep("1", StepKind.SLEEP, "1d", delay=timedelta(days=1))
    after = decide(claim(crashes=1), Parked(NOW + timedelta(days=2), "sleeps", (sleep,), b"{}"), NOW, 0.0)
    due = NOW + timedelta(days=1)
    row = NewStep("1", StepKind.SLEEP, "1d", due_at=due)

    assert (due, Hold.PARKED, "sleeps", None) == (after.scheduled_at, after.hold, after.note, after.closed)
    assert RunChange((row,), b"{}") == after.run


def test_an_earlier_wait_decides_when_a_parked_run_is_due():
    """Recorded waits count for the due time of a parked run like new ones."""
    sleep = NewStep("1", StepKind.SLEEP, "1d", delay=timedelta(days=1))
    until = NOW + timedelta(hours=1)

    assert until == decide(claim(), Parked(until, "sleeps", (sleep,)), NOW, 0.0).scheduled_at


def test_a_run_whose_step_failed_for_good_is_due_at_once():
    """Runs that park while a step fails for good are due at once, so that their code receives the error."""
    failed = FailedTry("1", StepKind.STEP, "charge", timedelta(0), 1, Failure(()), ERROR, policy("0"), 0.0)

    assert NOW == decide(claim(), Parked(None, "waits", (failed,)), NOW, 0.0).scheduled_at


def test_a_run_that_waits_without_a_limit_is_due_in_the_far_future():
    """Runs that wait without a time limit have a far due time."""
    assert FAR == decide(claim(), Parked(None, "waits"), NOW, 0.0).scheduled_at


def test_a_restarted_run_is_due_at_once():
    """Runs that begin again are due now, with their new arguments."""
    after = decide(claim(), Restarted(b'{"n": 2}', b"{}"), NOW, 0.0)

    assert (NOW, RunChange((), b"{}", arguments=b'{"n": 2}')) == (after.scheduled_at, after.run)


def test_a_held_run_is_tried_again_ever_more_rarely():
    """Held runs are looked at again after as long as they have been held, at most a minute, without a time limit."""
    first = decide(claim(), Held("step 3 was book_out"), NOW, 0.0)
    later = decide(claim(unreadable_at=NOW - timedelta(days=9)), Held("step 3 was book_out"), NOW, 0.0)

    assert first.scheduled_at is not None
    assert later.scheduled_at is not None
    assert (NOW, Hold.HELD, "step 3 was book_out") == (first.unreadable_at, first.hold, first.note)
    assert timedelta(0) < first.scheduled_at - NOW < later.scheduled_at - NOW == timedelta(minutes=1)
    assert RunChange(held="step 3 was book_out") == first.run


def row(path: str, outcome: StepOutcome = StepOutcome.OK) -> StepRecord:
    """Return a recorded step."""
    return StepRecord(7, path, StepKind.STEP, "charge", outcome, 41, NOW)


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("3", ["1", "2", "2.0.1", "2.0.2", "2.1.1"]),
        ("2.0.2", ["1", "2.0.1", "2.1.1"]),
        ("2", ["1"]),
        ("u2", ["1", "2", "2.0.1", "2.0.2", "2.1.1", "3"]),
        ("charge", ["1", "2", "2.0.1", "2.0.2", "2.1.1", "3", "u2"]),
        ("1", []),
    ],
)
def test_a_fork_copies_what_comes_before_its_step(before: str, kept: list[str]):
    """Forks copy the final rows of earlier calls, and of the other branches of the call that the step is in."""
    rows = [row(path) for path in ("1", "2", "2.0.1", "2.0.2", "2.1.1", "3", "u2")]
    waiting = row("1.5.1", StepOutcome.WAITING)

    assert kept == [each.path for each in rows_before([*rows, waiting], before)]


def test_a_due_time_without_limit_stays_far_when_the_clock_is_set():
    """Due times without a limit are recognized after the clock of the database was set."""
    assert [True, True, False] == [is_far(each) for each in (FAR, FAR - timedelta(days=300), NOW)]


def test_a_pause_ends_at_its_time():
    """Runs are paused until the end of their pause, or without a time until they are resumed."""
    paused = RunRecord(7, "checkout", "order-42", 1, 9, paused_at=NOW, paused_why="closed")
    until = replace(paused, paused_until=NOW + timedelta(hours=1))

    assert [RunFlags(), RunFlags(None, paused=True)] == [replace(paused, paused_at=None).flags(NOW), paused.flags(NOW)]
    assert [True, False] == [until.flags(NOW).paused, until.flags(NOW + timedelta(hours=1)).paused]


def test_the_id_of_a_child_names_its_caller():
    """The workflow and the id of the parent, the path of the call and the number of restarts are the id of a child."""
    parent = RunRecord(9, "checkout", "order-42", 1, 7)
    assert "checkout/order-42/3" == child_id(parent, "3")
    assert "checkout/order-42/4.0.1.2" == child_id(replace(parent, epoch=2), "4.0.1")
    assert "refund/order-42/3" == child_id(replace(parent, workflow="refund"), "3")


def test_the_id_of_a_child_has_a_longest_length():
    """Long ids of parents are cut between two letters, so that a database can always index the id of a child."""
    parent = RunRecord(9, "checkout", "éé" * 500, 1, 7)
    made = child_id(parent, "12")
    assert made.startswith("checkout/ééé")
    assert made.endswith("é/12")
    assert CHILD_ID_BYTES == len(made.encode())
    assert CHILD_ID_BYTES - 1 == len(child_id(replace(parent, id=f"+{parent.id}"), "12").encode())


DEADLINE = timedelta(hours=1)


@pytest.mark.parametrize("until", [None, NOW + timedelta(days=2)])
def test_a_run_that_waits_is_due_at_its_deadline(until: datetime | None):
    """Runs that wait or are held are due at their deadline at the latest."""
    limited = claim(policy=policy(deadline=DEADLINE), started_at=NOW - timedelta(minutes=59), claimed_at=NOW)
    ends_at = NOW + timedelta(minutes=1)
    parked = decide(limited, Parked(until, "waits"), NOW, 0.0)
    held = decide(replace(limited, unreadable_at=NOW - timedelta(days=1)), Held("other code"), NOW, 0.0)
    begun = decide(limited, Restarted(b"{}"), NOW, 0.0)
    assert [ends_at, ends_at, NOW] == [each.scheduled_at for each in (parked, held, begun)]
    assert [ends_at, ends_at] == [each.run.ends_at for each in (parked, begun) if each.run is not None]


def test_a_deadline_does_not_end_the_undos_of_a_run():
    """A run is not due at its deadline while its undos wait, or after a claim that has found it expired."""
    limited = claim(policy=policy(deadline=DEADLINE), started_at=NOW - timedelta(minutes=59), claimed_at=NOW)
    late = replace(limited, claimed_at=NOW + DEADLINE)
    undoing = decide(limited, Parked(None, "waits", undoing=True), NOW, 0.0)
    expired = decide(late, Parked(None, "waits"), NOW + DEADLINE, 0.0)
    catching = decide(replace(limited, parent_id=5), Parked(None, "waits"), NOW, 0.0)
    assert [FAR, FAR, FAR] == [each.scheduled_at for each in (undoing, expired, catching)]
