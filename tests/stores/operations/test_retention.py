"""Retention, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.stores.operations import retention
from redrive.stores.operations.retention import RetentionTimes
from tests.stores.helpers import T0, seconds
from tests.stores.operations.conversing import CLOCK, converse, names


def test_an_app_without_tasks_declares_nothing():
    """If there are no tasks to declare, no statement is run."""
    assert (None, []) == ((answer := list(retention.declare({}).steps)) or None, answer)


def test_for_ever_is_written_as_nothing():
    """Spans are written in microseconds, and an unlimited one as an empty text."""
    _, asked = converse(retention.declare({"send": RetentionTimes(seconds(2), None)}), [])

    assert [
        {"key": "keep:send", "value": "2000000"},
        {"key": "keep_dead:send", "value": ""},
        {"key": "keep_cancelled:send", "value": "2000000"},
    ] == asked[0].many


def test_a_survey_begins_at_the_first_job_that_exists():
    """Ids of deleted jobs are left out, however many they are."""
    operation = retention.survey(7, RetentionTimes(None, None), stride=10, now=T0)
    found, asked = converse(operation, CLOCK, [(10**6, 10**9)], [(10**6 + 3,)], [("p",)])

    assert (10**6 - 1, 10**6 + 9) == (asked[2].params["after_id"], asked[2].params["until"])
    assert ((10**6 + 3,), frozenset({"p"}), 10**6 + 9) == (found.ids, found.policies, found.last_id)


def test_a_survey_without_jobs_reads_nothing():
    """Behind the last job a survey ends after one read."""
    found, asked = converse(retention.survey(7, RetentionTimes(None, None), now=T0), CLOCK, [(None, 7)])

    assert ((), None, ["clock", "span"]) == (found.ids, found.last_id, names(asked))


@pytest.mark.parametrize(("deleted", "asked"), [([("d",)], []), ([], ["policy_retire"])], ids=["deleted", "not yet"])
def test_a_policy_is_retired_unless_it_was_deleted(deleted: list[tuple[str]], asked: list[str]):
    """Forgetting a policy retires it if no policy was deleted; otherwise no further statement is run."""
    _, all_asked = converse(retention.forget_policy("d", now=T0), CLOCK, deleted, *([[]] if asked else []))

    assert ["clock", "policy_forget", *asked] == names(all_asked)
    assert T0 - retention.RETIRED_FOR == all_asked[1].params["before"]


def young(*answers: list[tuple[int | None]], keep: RetentionTimes, last_id: int | None = 300) -> tuple[bool, list[Any]]:
    """Ask whether a stride of 100 jobs is too young to be deleted."""
    found = retention.Survey(T0, (), frozenset(), last_id)
    return converse(retention.is_young(found, keep, stride=100), *answers)


@pytest.mark.parametrize(
    ("stored", "keep", "shortest"),
    [
        (None, RetentionTimes(seconds(60), None), 60),
        (5_000_000, RetentionTimes(seconds(60), None), 5),
        (90_000_000, RetentionTimes(seconds(60), seconds(20), None), 20),
        (7_000_000, RetentionTimes(None, None), 7),
    ],
)
def test_jobs_are_young_until_the_shortest_time_has_passed(stored: int | None, keep: RetentionTimes, shortest: int):
    """That of any task or kind of end; the time of a task may be one that this process does not know."""
    is_young, asked = young([(stored,)], [], keep=keep)
    is_old, _ = young([(stored,)], [(201,)], keep=keep)

    assert (True, False) == (is_young, is_old)
    assert {"after_id": 200, "until": 300, "before": T0 - seconds(shortest)} == asked[1].params


@pytest.mark.parametrize(
    ("keep", "last_id"), [(RetentionTimes(None, None), 300), (RetentionTimes(seconds(1), None), None)]
)
def test_without_a_time_and_behind_the_last_job_all_are_young(keep: RetentionTimes, last_id: int | None):
    """Nothing can be deleted there, and no job is read."""
    is_young, asked = young([(None,)], keep=keep, last_id=last_id)

    assert (True, ["keep_shortest"]) == (is_young, names(asked))
