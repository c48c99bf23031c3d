"""Replays: which recorded step a request receives, and what holds a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.replay import Replay, StepRequest, shown
from redrive.engine.runs import (
    UNDONE,
    RunRecord,
    StepError,
    StepKind,
    StepOutcome,
    StepRecord,
    branch_path,
    in_order,
    next_path,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = RunRecord(7, "checkout", "order-42", 1, 0)


def row(path: str, name: str = "", kind: StepKind = StepKind.STEP, digest: int | None = None) -> StepRecord:
    """Return a finished row; by default it is named like its path."""
    return StepRecord(7, path, kind, name or f"s{path}", StepOutcome.OK, 3, NOW, digest=digest)


def request(name: str, kind: StepKind = StepKind.STEP, digest: int | None = None) -> StepRequest:
    """Return a request from a line of a body."""
    return StepRequest(kind, name, digest, "flows/checkout.py:31")


def test_a_recorded_step_is_found_by_branch_and_position():
    """Requests receive the row of their branch and position."""
    replay = Replay(RUN, [row("1"), row("2.0.1"), row("2.1.1")])

    assert row("1") == replay.ask("", 1, request("s1")).row
    assert row("2.1.1") == replay.ask("2.1", 1, request("s2.1.1")).row


def test_a_step_behind_the_last_row_is_new():
    """Requests behind the last row of their branch have a path and no row."""
    answer = Replay(RUN, [row("1")]).ask("", 2, request("book"))

    assert ("2", 2, None, None) == (answer.path, answer.position, answer.row, answer.mismatch)


def test_another_name_is_a_mismatch_with_both_names_and_the_line():
    """Mismatches name the recorded step, the requested one, the line and the remedies."""
    answer = Replay(RUN, [row("1"), row("2", "book_out")]).ask("", 2, request("send_mail"))

    assert (
        "checkout order-42 (version 1): step 2 was `book_out`; the code now asks for `send_mail` "
        "(flows/checkout.py:31). Nothing was run. The run is held; a worker with the earlier code, a patch "
        "(flow.patched) or redrive runs fork lets it go on."
    ) == answer.mismatch


def group(branches: int) -> StepRequest:
    """Return a request for a group of so many branches."""
    return StepRequest(StepKind.GATHER, "gather", line="flows/checkout.py:31", branches=branches)


@pytest.mark.parametrize("decided", [True, False])
def test_a_group_with_fewer_branches_is_a_mismatch_before_it_runs(decided: bool):
    """Recorded steps of a branch that the call opens no longer hold the run at the call, and not at its end."""
    rows = [row("1.0.1", "a"), row("1.2.1", "c"), row("1.1.1", "b"), row("2", "d")]
    if decided:
        rows.append(row("1", "gather", StepKind.GATHER))

    assert Replay(RUN, rows).ask("", 1, group(3)).mismatch is None
    assert (
        "checkout order-42 (version 1): step 1.1.1 was `b`, and step 1 opens 1 branch; the code now asks for `gather` "
        "(flows/checkout.py:31). Nothing was run. The run is held; a worker with the earlier code, a patch "
        "(flow.patched) or redrive runs fork lets it go on."
    ) == Replay(RUN, rows).ask("", 1, group(1)).mismatch
    assert "step 1.2.1 was `c`, and step 1 opens 2 branches" in str(Replay(RUN, rows).ask("", 1, group(2)).mismatch)


def test_branches_that_a_run_that_starts_again_keeps_may_be_missing():
    """A step that is executed anew may lead to fewer branches than it did before."""
    again = replace(row("1"), outcome=StepOutcome.WAITING, error=StepError((), "undone", UNDONE))
    replay = Replay(RUN, [again, row("2.0.1"), row("2.1.1")])
    replay.ask("", 1, request("s1"))

    assert replay.ask("", 2, group(1)).mismatch is None


def test_a_mismatch_behind_a_new_step_does_not_say_that_nothing_was_run():
    """A body that was given a new step may have run it before the end that does not fit."""
    replay = Replay(RUN, [row("1.0.1", "a"), row("1.1.1", "b")])
    replay.ask("", 1, group(2))
    replay.ask("1.0", 2, request("new"))

    assert "ended without it. The run is held" in str(replay.missing())
    assert "ended without it. Nothing was run. The run is held" in str(Replay(RUN, [row("1")]).missing())


def test_a_row_with_an_earlier_name_fits():
    """Requests receive rows with their earlier names, and no others."""
    replay, renamed = Replay(RUN, [row("1", "charge")]), StepRequest(StepKind.STEP, "pay", aka=("take", "charge"))

    assert row("1", "charge") == replay.ask("", 1, renamed).row
    assert replay.ask("", 1, StepRequest(StepKind.STEP, "pay", aka=("take",))).mismatch is not None
    assert replay.ask("", 1, StepRequest(StepKind.WAIT, "pay", aka=("charge",))).mismatch is not None


def test_another_kind_is_a_mismatch():
    """Steps of another kind with the same name do not fit."""
    answer = Replay(RUN, [row("1", "shipped", StepKind.WAIT)]).ask("", 1, StepRequest(StepKind.EVENT, "shipped"))

    assert answer.mismatch is not None
    assert "step 1 was a wait for the signal `shipped`; the code now asks for a wait for the event `shipped`. " in (
        answer.mismatch
    )


def test_other_arguments_are_a_mismatch():
    """Steps with another digest of their arguments do not fit; a digest that is missing fits."""
    recorded = row("1", digest=5)

    assert "step 1, `s1`, was recorded with other arguments; " in str(
        Replay(RUN, [recorded]).ask("", 1, request("s1", digest=6)).mismatch
    )
    assert Replay(RUN, [recorded]).ask("", 1, request("s1", digest=5)).mismatch is None
    assert Replay(RUN, [recorded]).ask("", 1, request("s1")).mismatch is None
    assert Replay(RUN, [row("1")]).ask("", 1, request("s1", digest=5)).mismatch is None


def test_a_new_step_before_a_recorded_one_is_a_mismatch():
    """New steps in front of recorded ones of their branch hold the run."""
    replay = Replay(RUN, [row("1.0.2", "pack"), row("1.0.3"), row("1.1.1"), row("2")])

    assert "step 1.0.1 is new, and step 1.0.2 behind it was `pack`; " in str(
        replay.ask("1.0", 1, request("weigh")).mismatch
    )


def test_a_step_in_the_place_of_branches_is_a_mismatch():
    """Steps where branches were opened hold the run; a gather there fits."""
    replay = Replay(RUN, [row("1.0.1"), row("2")])

    assert "step 1 has opened branches; " in str(replay.ask("", 1, request("pay")).mismatch)
    assert replay.ask("", 1, request("gather", StepKind.GATHER)).mismatch is None


def test_a_gather_without_rows_fits_everywhere():
    """Gathers of branches that recorded nothing leave no row behind."""
    assert Replay(RUN, [row("2")]).ask("", 1, request("gather", StepKind.GATHER)).mismatch is None


def test_steps_that_the_body_has_not_reached_hold_the_run():
    """Recorded steps that the body did not ask for are listed in the order of the calls."""
    replay = Replay(RUN, [row("10"), row("2"), row("1")])
    replay.ask("", 1, request("s1"))

    assert ["2", "10"] == [each.path for each in replay.unreached()]
    assert "checkout order-42 (version 1): step 2 was `s2` and 1 more, and the code has ended without it. " in str(
        replay.missing()
    )
    assert "and the code has ended without it (a.py:3). " in str(replay.missing("a.py:3"))


def test_a_single_missing_step_is_named_alone():
    """Texts about one missing step count no others."""
    assert "step 1 was `s1`, and the code" in str(Replay(RUN, [row("1")]).missing())


def test_a_body_that_has_reached_all_steps_fits():
    """Nothing is missing after all recorded steps were reached."""
    replay = Replay(RUN, [row("1")])
    replay.ask("", 1, request("s1"))

    assert replay.missing() is None


def test_dropped_branches_need_not_be_reached():
    """Rows of a branch that a recorded decision has ended do not hold the run."""
    replay = Replay(RUN, [row("1.0.1"), row("1.10.1"), row("1.1.1")])
    replay.drop("1.1")

    assert ["1.0.1", "1.10.1"] == [each.path for each in replay.unreached()]


def test_steps_behind_one_that_is_executed_anew_need_not_be_reached():
    """They were kept when the run started again; steps of other branches of the same call are not behind it."""
    undone = replace(row("1.0.1"), outcome=StepOutcome.WAITING, error=StepError((), "undone", UNDONE))
    late = replace(row("3"), lease_id=9, outcome=StepOutcome.FAILED, error=StepError((), "no", "ERROR"))

    branches = Replay(RUN, [undone, row("1.0.2"), row("1.1.1"), row("2")])
    branches.ask("1.0", 1, request("s1.0.1"))
    assert "step 1.1.1 was `s1.1.1`, and the code has ended" in str(branches.missing())
    replay = Replay(RUN, [row("1"), row("2"), late, row("4"), row("5.0.1")])
    for number in (1, 2, 3):
        replay.ask("", number, request(f"s{number}"))

    assert None is replay.missing()


def test_undos_and_marks_are_not_compared():
    """Undos, marks of the engine and steps of the gate belong to no position."""
    replay = Replay(RUN, [row("u1", "refund", StepKind.UNDO), row(":undo", ":undo", StepKind.VALUE)])

    assert () == replay.unreached()
    assert replay.is_new("", 1)


def test_a_patch_is_taken_where_it_was_recorded():
    """Patches that a run has taken are found again."""
    patch = row("2", "invoice-first", StepKind.PATCH)
    replay = Replay(RUN, [row("1"), patch, row("3")])

    assert patch == replay.ask("", 2, request("invoice-first", StepKind.PATCH)).row


def test_a_patch_is_not_taken_where_another_step_was_recorded():
    """Runs that have passed the place of a patch have no row for it, and no mismatch."""
    answer = Replay(RUN, [row("1")]).ask("", 1, request("invoice-first", StepKind.PATCH))

    assert (None, None) == (answer.row, answer.mismatch)


def test_rows_of_patches_that_the_code_has_removed_are_skipped():
    """Steps behind a removed patch are found, and the patch need not be reached."""
    replay = Replay(RUN, [row("1", "old-patch", StepKind.PATCH), row("2", "pay"), row("3", "late", StepKind.PATCH)])
    answer = replay.ask("", 1, request("pay"))

    assert ("2", 2) == (answer.path, answer.position)
    assert answer.mismatch is None
    assert () == replay.unreached()


def test_steps_are_shown_in_words():
    """Texts name the kind of each step but plain ones."""
    assert "a sleep" == shown(StepKind.SLEEP, "sleep")
    assert "a call of the workflow `pay`" == shown(StepKind.CALL, "pay")


def test_rows_are_sorted_like_calls():
    """Rows are listed in the order of the calls, with undos behind them."""
    assert ["2", "10", "10.0.1", "u2"] == [each.path for each in in_order(map(row, ["u2", "10.0.1", "10", "2"]))]


# A body as a tree: each element of a branch is a step, or a gather of branches.
Body = list["int | list[Body]"]

bodies = st.recursive(
    st.lists(st.integers(0, 3), max_size=4),
    lambda inner: st.lists(st.one_of(st.integers(0, 3), st.lists(inner, max_size=3)), max_size=4),
    max_leaves=12,
)


def calls(body: Body, branch: str = "") -> Iterator[tuple[str, int, StepRequest]]:
    """Yield the requests of a body: of each branch in its order, one branch after the other."""
    for position, part in enumerate(body, 1):
        if isinstance(part, int):
            yield branch, position, StepRequest(StepKind.STEP, f"s{part}")
        else:
            yield branch, position, StepRequest(StepKind.GATHER, "gather")
            for number, inner in enumerate(part):
                yield from calls(inner, branch_path(next_path(branch, position), number))


def rows_of(body: Body) -> list[StepRecord]:
    """Return the rows that a whole run of a body leaves."""
    return [
        row(next_path(branch, position), each.name)
        for branch, position, each in calls(body)
        if each.kind is StepKind.STEP
    ]


def finds(body: Body, rows: list[StepRecord]) -> str | None:
    """Replay a body, and return the first mismatch."""
    replay = Replay(RUN, rows)
    for branch, position, each in calls(body):
        answer = replay.ask(branch, position, each)
        if answer.mismatch is not None:
            return answer.mismatch
    return replay.missing()


@given(bodies)
def test_each_body_fits_its_own_rows(body: Body):
    """Bodies that were not changed receive all their rows, and nothing is missing."""
    assert finds(body, rows_of(body)) is None


@given(bodies, st.data())
def test_a_prefix_of_each_branch_fits(body: Body, data: st.DataObject):
    """Runs that were interrupted anywhere go on: in each branch, what is recorded is a beginning of its steps."""
    rows = rows_of(body)
    cut = {each.path.rpartition(".")[0]: data.draw(st.integers(1, 6)) for each in rows}

    def is_kept(path: str) -> bool:
        parts = path.split(".")
        # A branch is reached only if the branches around it have come to its gather.
        return all(int(parts[size - 1]) < cut.get(".".join(parts[: size - 1]), 7) for size in range(len(parts), 0, -2))

    assert finds(body, [each for each in rows if is_kept(each.path)]) is None


@given(bodies, st.data())
def test_a_changed_name_is_found(body: Body, data: st.DataObject):
    """Bodies with one recorded name changed are held."""
    rows = rows_of(body)
    if not rows:
        return
    changed = data.draw(st.integers(0, len(rows) - 1))
    rows[changed] = row(rows[changed].path, "another")

    assert "was `another`" in str(finds(body, rows))


@given(bodies, st.data())
def test_a_lost_end_of_the_body_is_found(body: Body, data: st.DataObject):
    """Bodies that end early are held if they leave recorded steps behind."""
    kept = body[: data.draw(st.integers(0, len(body)))]
    left = [each for each in rows_of(body) if int(each.path.split(".")[0]) > len(kept)]

    assert (not left) == (finds(kept, rows_of(body)) is None)


@pytest.mark.parametrize("kind", StepKind)
def test_each_kind_has_words(kind: StepKind):
    """Every kind of step can be shown."""
    assert shown(kind, "x")
