"""Real brokers and real workers: what a policy decides is what happens."""

from __future__ import annotations

import pytest

from tests.contrib.celery.test_brokers import rules_of_redrive, scripts

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.unmeasured]


def compare(bazaar, number: int) -> None:
    """Compare the rules of a worker with those of redrive's own engine."""
    sent = [(bazaar.send("ruled", f"r{index}", script), script) for index, script in enumerate(scripts(number))]
    expected = {message_id: rules_of_redrive(script) for message_id, script in sent}
    bazaar.wait("event", times=sum(map(len, expected.values())))
    assert expected == {message_id: bazaar.rules(message_id) for message_id, _ in sent}


def scenario(bazaar) -> None:
    """Prove the main promises on one broker: rules, the catch, an asynchronous actor, a group and a pipeline."""
    bazaar.start()
    compare(bazaar, 20)
    gone = bazaar.send("simple", "gone", ["ConnectionError"])
    bazaar.send("waiting", "async", ["ConnectionError", "ok"])
    bazaar.send("begin", "group", "a", "b")
    bazaar.send("begin", "pipeline", "c")

    ((_, _, actor, request, error, rules, task_id),) = bazaar.wait("catch")
    assert ("simple", {"key": "gone", "script": ["ConnectionError"]}, "down") == (actor, request, error)
    assert ["backoff"] * 5 + ["attempts"] == rules
    assert gone == task_id
    bazaar.wait("done", "async")
    assert [["a", "b"]] == [row[2] for row in bazaar.wait("total")]
    assert [["pipeline", "c"]] == [row[2:] for row in bazaar.wait("follow")]


def test_a_worker_on_redis_decides_as_the_policy_does(open_bazaar):
    """Rules, the catch, an asynchronous actor, a group and a pipeline through Redis."""
    scenario(open_bazaar("redis"))


def test_a_worker_on_rabbitmq_decides_as_the_policy_does(open_bazaar):
    """Rules, the catch, an asynchronous actor, a group and a pipeline through RabbitMQ."""
    scenario(open_bazaar("rabbitmq"))
