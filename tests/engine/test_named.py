"""Named calls in the pure parts: their paths, their order, replays, forks and second starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.replay import Replay, StepRequest, shown
from redrive.engine.runs import (
    StepError,
    StepKind,
    StepOutcome,
    StepRecord,
    check_gate_name,
    in_order,
    is_named,
    named_branch,
    next_path,
    path_order,
    rows_before,
    undo_path,
)
from redrive.engine.steps import NewStep
from redrive.engine.undoing import AGAIN, UndonePath, UndoPlan, again, forked, new_plan, newest
from redrive.errors import ConfigurationError
from tests.engine.test_replay import NOW, RUN, request
from tests.engine.test_undoing import written

ERROR = StepError(("builtins.ValueError",), "no seat", "ERROR")


def at(seconds: float) -> Any:
    """Return an instant."""
    return NOW + timedelta(seconds=seconds)


def row(name: str, seq: int | None, ordinal: int = 1, **changes: Any) -> StepRecord:
    """Return the finished row of a named step, at the second of its number."""
    path = next_path(named_branch(StepKind.STEP, name, 7), ordinal)
    found = StepRecord(7, path, StepKind.STEP, name, StepOutcome.OK, 3, at(seq or 0), digest=7, seq=seq)
    return replace(found, **changes)


def plain(path: str, seq: int | None = None, **changes: Any) -> StepRecord:
    """Return the finished row of a step of the body itself."""
    found = StepRecord(7, path, StepKind.STEP, f"s{path}", StepOutcome.OK, 3, at(seq or 0), seq=seq)
    return replace(found, **changes)


def dropped(name: str, seconds: float, **changes: Any) -> StepRecord:
    """Return the row of a named step that the body has cut off."""
    return row(name, None, outcome=StepOutcome.DROPPED, at=at(seconds), **changes)


def asks(replay: Replay, *rows: StepRecord) -> None:
    """Let a body ask for recorded named steps."""
    for each in rows:
        branch, _, ordinal = each.path.rpartition(".")
        replay.ask(branch, int(ordinal), request(each.name, digest=7))


def test_the_path_of_a_named_call_has_its_identity():
    """Equal kinds, names and inputs have one branch, and each of the three makes another one."""
    branch = named_branch(StepKind.STEP, "charge", 7)

    assert branch == named_branch(StepKind.STEP, "charge", 7)
    assert is_named(branch)
    assert not is_named("3.0.1")
    assert 4 == len({
        branch,
        named_branch(StepKind.SLEEP, "charge", 7),
        named_branch(StepKind.STEP, "ship", 7),
        named_branch(StepKind.STEP, "charge", 8),
    })  # fmt: skip


def test_paths_of_named_calls_are_paths_of_steps():
    """They come behind those of positions, and the gate does not take them for names."""
    path = next_path(named_branch(StepKind.STEP, "charge", 7), 2)

    assert path_order("9999") < path_order(path) < path_order(undo_path(path))
    assert (0, 1, 2) == (path_order(path)[0], path_order(undo_path(path))[0], path_order("@home.1")[0])
    check_gate_name("@home.1")
    with pytest.raises(ConfigurationError, match="paths of steps"):
        check_gate_name(path)


def test_steps_beside_named_calls_are_in_the_order_of_their_ends():
    """What ended before the first named call comes first, what has no end comes last, and undos behind."""
    first, second = row("b", 1), row("a", 2)
    waiting = row("w", None, outcome=StepOutcome.WAITING, at=at(9))
    undo = replace(first, path=undo_path(first.path), kind=StepKind.UNDO, seq=None)
    rows = [plain("1"), first, second, plain("2", 3), dropped("d", 1), waiting, undo]

    assert rows == in_order(reversed(rows))
    assert [plain("2"), plain("10")] == in_order([plain("10"), plain("2")])


def test_a_named_step_is_found_whatever_was_asked_before():
    """A replay finds it by its path, and a new one in front of recorded ones is no mismatch."""
    a, b = row("a", 1), row("b", 2)
    replay = Replay(RUN, [a, b])

    assert b == replay.ask(b.path.rpartition(".")[0], 1, request("b", digest=7)).row
    answer = replay.ask(named_branch(StepKind.STEP, "new", 7), 1, request("new", digest=7))
    assert (None, None) == (answer.row, answer.mismatch)
    assert (True, False, True) == (replay.is_left(a.path), replay.is_left(b.path), replay.misses)
    assert "is new, and step 2" in (Replay(RUN, [a, plain("2")]).ask("", 1, request("x")).mismatch or "")


def test_other_inputs_under_an_equal_digest_of_the_path_are_a_mismatch():
    """Name and inputs are compared, because a path has 32 bits of them."""
    a = row("a", 1)

    answer = Replay(RUN, [a]).ask(a.path.rpartition(".")[0], 1, request("a", digest=8))
    assert "was recorded with other arguments" in (answer.mismatch or "")


def test_a_dropped_step_does_not_have_to_be_reached():
    """A body may end without a call that it has cut off before."""
    replay = Replay(RUN, [dropped("d", 1)])

    assert not replay.misses
    assert replay.missing() is None


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (None, "was `a`; the code does not ask for it now. Nothing was run."),
        (request("b", digest=7), "was `a`; the code now asks for `b` (flows/checkout.py:31). Nothing was run."),
        (request("a", digest=8), "`a`, was recorded with other inputs; the code now asks for `a`"),
    ],
)
def test_a_text_names_what_the_code_does_not_ask_for(asked: StepRequest | None, problem: str):
    """It has the recorded step, and the first new one with its line."""
    assert problem in Replay(RUN, [row("a", 1)]).left_out(asked)


def test_a_text_names_what_the_code_does_not_cut_off():
    """It has the step that was dropped."""
    d = dropped("d", 1)

    assert f"the code has cut off step {d.path}, `d`, and waits for it now" in Replay(RUN, [d]).not_cut_off(d.path)


def test_steps_behind_one_that_is_executed_anew_may_be_missing():
    """Of two steps the one with the larger number comes after the other; one without a number has no end yet."""
    renewed = row("a", 1, outcome=StepOutcome.WAITING, error=AGAIN)

    def missing(first: StepRecord, other: StepRecord) -> str:
        replay = Replay(RUN, [first, other])
        asks(replay, first)
        return replay.missing() or ""

    assert not missing(renewed, row("b", 2))
    assert "`b`" in missing(replace(renewed, seq=2), row("b", 1))
    assert not missing(renewed, row("b", None))
    assert "`b`" in missing(replace(renewed, seq=None), row("b", 2))
    replay = Replay(RUN, [plain("1", outcome=StepOutcome.WAITING, error=AGAIN), row("b", 2)])
    replay.ask("", 1, request("s1"))
    assert not replay.misses
    assert renewed.is_renewed


def test_branches_of_a_decided_call_have_no_named_rows():
    """The rows below a branch are those of its positions."""
    replay = Replay(RUN, [plain("1.0.1"), plain("1.1.1"), row("a", 1)])

    assert {"1.1.1"} == replay.below("1.1")


def test_a_sleep_has_its_name_in_texts():
    """One without a name is a sleep."""
    assert ("a sleep", "the sleep `pause`") == (shown(StepKind.SLEEP, "sleep"), shown(StepKind.SLEEP, "pause"))


def test_a_fork_copies_the_ends_before_that_of_its_step():
    """It goes by numbers; a step without an end has all of them before it, one before all numbers none."""
    first, a, b, late = plain("1"), row("a", 1), row("b", 2), plain("2", 3)
    early, after = dropped("d", 1.5), dropped("e", 2.5)
    waiting = row("w", None, outcome=StepOutcome.WAITING)
    rows = [first, a, b, late, early, after, waiting]

    def names(path: str) -> set[str]:
        return {each.name for each in rows_before(rows, path)}

    assert {"s1", "a", "d"} == names(b.path)
    assert {"s1", "a", "b", "d", "e"} == names("2")
    assert {"s1", "a", "b", "s2"} == names(waiting.path)
    assert set() == names("1")
    assert {"s1", "a", "b", "s2", "d", "e"} == names("9")
    assert (first.path, a.path, early.path) == forked(rows, b.path)[0]


def test_undos_of_one_instant_go_back_in_the_order_of_the_ends():
    """The step that ended last is taken back first."""
    a, b = row("a", 1, at=at(5)), row("b", 2, at=at(5))

    assert [b, a] == sorted([a, b], key=newest)


def plan(*steps: StepRecord, failed: StepRecord | None = None) -> StepRecord:
    """Return the row of the beginning of the undos."""
    path = None if failed is None else failed.path
    return written(new_plan(ERROR, UndoPlan(tuple(UndonePath(each.path, each.name) for each in steps), path)))


def undone(step: StepRecord) -> StepRecord:
    """Return the row of its undo."""
    return written(NewStep(undo_path(step.path), StepKind.UNDO, f"of {step.name}"))


def test_a_run_that_starts_again_forgets_the_failure_and_its_answers():
    """What began when the body had received the failure is an answer; what ran beside it is kept, and loosened."""
    a = row("a", 1)
    bad = row("bad", 2, outcome=StepOutcome.FAILED, error=ERROR)
    beside, answer = row("beside", 3, took=timedelta(seconds=2)), row("answer", 4)
    cut, before = dropped("cut", 2.5), dropped("before", 1)
    late = dropped("late", 2.5, result=b"null")
    rows = [a, bad, beside, answer, cut, before, late, undone(a), plan(a, failed=bad), plain("1", 5)]

    change = again(rows)

    assert {bad.path, answer.path, cut.path, undo_path(a.path), ":undo", "1"} == set(change.forget)
    assert (a.path,) == change.renew
    assert beside.path not in change.forget


def test_a_failure_that_its_body_has_answered_is_kept():
    """A failed step with an answer behind it did not end the run, also where it was tried before."""
    history = replace(row("x", 1)).history
    bad = row("bad", 1, outcome=StepOutcome.FAILED, error=ERROR)
    answer = row("answer", 2, history=history)

    assert () == again([bad, answer, dropped("cut", 9)]).forget


def test_a_cancellation_cuts_what_followed_it():
    """The call at which it arrived has no row, and its mark has a number."""
    path = next_path(named_branch(StepKind.STEP, "c", 7), 1)
    mark = StepRecord(7, f":cancel {path}", StepKind.CANCEL, ":cancel", StepOutcome.OK, 3, at(2), seq=2)
    kept, cleanup, plain_call = row("a", 1), row("cleanup", 3), plain("1")

    assert {mark.path, cleanup.path} == set(again([mark, kept, cleanup, plain_call]).forget)


def test_what_follows_a_step_that_is_executed_anew_is_loosened():
    """A step that began after its end keeps its result whatever its inputs are."""
    a, b = row("a", 1), row("b", 2)

    assert (b.path,) == again([a, b, undone(a), plan(a)]).loosen
