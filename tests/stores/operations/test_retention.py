"""Retention, driven by hand."""

from __future__ import annotations

from redrive.stores.operations import retention
from redrive.stores.operations.retention import Keep
from tests.stores.helpers import T0, seconds
from tests.stores.operations.conversing import CLOCK, converse, names


def test_an_app_without_tasks_declares_nothing():
    """Where there is nothing to be written down no statement is run."""
    assert (None, []) == ((answer := list(retention.declare({}).steps)) or None, answer)


def test_for_ever_is_written_as_nothing():
    """Spans are written in microseconds, and for ever as an empty text."""
    _, asked = converse(retention.declare({"send": Keep(seconds(2), None)}), [])

    assert [{"key": "keep:send", "value": "2000000"}, {"key": "keep_dead:send", "value": ""}] == asked[0].many


def test_a_full_batch_goes_on_behind_its_last_job():
    """A survey that found as much as one transaction deletes goes on there, not at the end of its stride."""
    ids = [(number,) for number in range(1, retention.BATCH + 1)]
    found, _ = converse(retention.survey(0, Keep(None, None), now=T0), CLOCK, ids, [("p",)], [(10**6,)])

    assert (retention.BATCH, frozenset({"p"})) == (found.last_id, found.policies)


def test_a_policy_that_somebody_may_have_seen_is_put_back():
    """A policy that turns out to be wanted after it was deleted is inserted again in the same transaction."""
    _, asked = converse(retention.forget_policy("d"), [("{}",)], [(1,)], [])

    assert ["policy_forget", "policy_used", "policy_put"] == names(asked)
    assert [{"digest": "d", "document": "{}"}] == asked[2].many
