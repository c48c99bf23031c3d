"""Real brokers and real workers: what a policy decides is what happens."""

from __future__ import annotations

import random

import pytest

import redrive
from redrive.testing import VirtualClock, drain
from tests.contrib.celery.rig import policies

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.unmeasured]

WORDS = ["KeyError", "ConnectionError", "TimeoutError", "ValueError", "NameError", "GiveUp", "RetryAfter", "ok"]


def scripts(number: int) -> list[list[str]]:
    """Return random sequences of failures, the same ones in each run."""
    draw = random.Random(35)
    return [draw.choices(WORDS, [4, 4, 3, 1, 1, 1, 2, 3], k=6) for _ in range(number)]


def rules_of_redrive(script: list[str]) -> list[str]:
    """Return the rules of redrive's own engine for a sequence of failures."""
    app = redrive.App("memory://", clock=VirtualClock())
    words = iter(script)

    @app.task(retry=policies.RULED, name="ruled")
    def ruled() -> None:
        word = next(words)
        if word != "ok":
            raise policies.ERRORS[word]

    job = ruled.enqueue()
    drain(app)
    return [each.rule for each in job.attempts if each.rule is not None]


def compare(shop, number: int) -> None:
    """Compare the rules of a worker with those of redrive's own engine."""
    sent = [(shop.send("ruled", f"r{index}", script), script) for index, script in enumerate(scripts(number))]
    expected = {task_id: rules_of_redrive(script) for task_id, script in sent}
    shop.wait("event", times=sum(map(len, expected.values())))
    assert expected == {task_id: shop.rules(task_id) for task_id, _ in sent}


def scenario(shop) -> None:
    """Prove the main promises on one broker: rules, the catch, a killed process, a chord and a chain."""
    shop.start()
    compare(shop, 20)
    gone = shop.send("simple", "gone", ["ConnectionError"])
    killed = shop.send("simple", "killed", ["kill", "ok"])
    shop.send("begin", "chord", "a", "b")

    ((_, _, task, request, error, rules, task_id),) = shop.wait("catch")
    assert ("shop.simple", {"key": "gone", "script": ["ConnectionError"]}, "down") == (task, request, error)
    assert ["backoff"] * 5 + ["attempts"] == rules
    assert gone == task_id
    shop.wait("run", "simple", "killed", times=2)
    assert ("SUCCESS", "killed") == shop.end_of(killed)
    (lost,) = [row for row in shop.rows("event") if row[3] == killed]
    assert ["TaskLost", killed, "crash", 1] == lost[2:]
    ((*_, ended),) = shop.wait("total")
    assert {"a", "b"} == set(ended)


def test_a_worker_on_redis_decides_as_the_policy_does(open_shop):
    """Rules, the catch, a lost process and a chord through Redis."""
    scenario(open_shop("redis"))


def test_a_worker_on_rabbitmq_decides_as_the_policy_does(open_shop):
    """Rules, the catch, a lost process and a chord through RabbitMQ."""
    scenario(open_shop("rabbitmq"))
