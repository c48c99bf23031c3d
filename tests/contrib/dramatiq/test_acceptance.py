"""The promises about Dramatiq on both brokers, with real workers that are killed; for the night."""

from __future__ import annotations

import pytest

from tests.contrib.celery.rig.workers import wait_for
from tests.contrib.dramatiq.test_brokers import compare

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.night]


# -------------------------------------------------------------------------------------------------- one worker for all


def test_200_random_sequences_have_the_rules_of_redrives_own_engine(running):
    """A worker decides about each failure as redrive's own engine does."""
    compare(running, 200)


@pytest.mark.realtime
def test_a_hint_is_a_lower_bound(running, record_property):
    """After a refusal with a hint of 2 s the second run is not earlier than that."""
    running.send("simple", "hinted", ["Busy", "ok"])
    (first, *_), (second, *_) = running.wait("run", "simple", "hinted", times=2)

    record_property("figure", f"Dramatiq: a hint of 2 s was heeded after {second - first:.2f} s")
    assert second - first >= 2.0


def test_give_up_ends_a_call_once(running):
    """A final failure runs once, and its catch actor once."""
    message_id = running.send("simple", "stolen", ["GiveUp"])
    running.wait("caught", message_id)
    after = running.send("simple", "after stolen", ["GiveUp"])
    running.wait("caught", after)

    assert (1, 1) == (running.count("run", "simple", "stolen"), running.count("caught", message_id))
    assert ["permanent"] == running.rules(message_id)


def test_a_catch_that_fails_once_is_repeated(running):
    """A catch actor is repeated until it succeeds, with the same request."""
    message_id = running.send("limited", "recover fails", ["GiveUp"])
    running.wait("caught", message_id)
    first, second = running.rows("catch", "limited", {"key": "recover fails", "script": ["GiveUp"]})

    assert first[2:] == second[2:]
    assert ["permanent", "catch"] == running.rules(message_id) + running.rules(f"{message_id}-catch")


def test_a_header_of_an_unknown_version_ends_the_call(running):
    """The actor does not run, and the catch actor does."""
    message_id = running.send("simple", "newer", ["ok"], redrive={"v": 2})
    running.wait("caught", message_id)

    assert (0, ["permanent"]) == (running.count("run", "simple", "newer"), running.rules(message_id))


def test_a_time_limit_is_a_failure_that_the_policy_retries(running):
    """A time limit counts as an attempt, also one of an asynchronous actor."""
    message_id = running.send("limited", "slow", ["sleep:60", "ok"])
    waiting = running.send("waiting", "slow async", ["sleep", "ok"])
    running.wait("done", "slow")
    running.wait("done", "slow async")

    assert [["backoff"]] * 2 == [running.rules(each) for each in (message_id, waiting)]


def test_snoozes_are_not_charged_and_cancel_has_no_catch(running):
    """Three snoozes leave the single retry of the policy."""
    snoozed = running.send("limited", "sleepy", [*["Snooze:0.1"] * 3, "ConnectionError", "ok"])
    cancelled = running.send("limited", "cancelled", ["Cancel"])
    running.wait("done", "sleepy")
    running.wait("run", "limited", "cancelled")

    assert (["backoff"], []) == (running.rules(snoozed), running.rules(cancelled))
    assert 0 == running.count("caught", cancelled)


def test_groups_and_pipelines_wait_for_actors_that_are_retried(running):
    """A group of three parts that fail once ends once, and a pipeline goes on with the result."""
    running.send("begin", "group", "g1", "g2", "g3")
    running.send("begin", "pipeline", "p1")

    assert [["g1", "g2", "g3"]] == [row[2] for row in running.wait("total")]
    assert [["pipeline", "p1"]] == [row[2:] for row in running.wait("follow")]


# ------------------------------------------------------------------------------------------- workers that are stopped


def test_a_worker_that_is_killed_during_an_attempt_loses_nothing(open_bazaar, broker):
    """Another worker runs the actor again, and nothing is charged."""
    bazaar = open_bazaar(broker)
    worker = bazaar.start()
    message_id = bazaar.send("simple", "killed", ["sleep:60", "ok"])
    bazaar.wait("run", "simple", "killed")
    worker.kill()
    bazaar.start()
    bazaar.wait("done", "killed")

    assert (2, []) == (bazaar.count("run", "simple", "killed"), bazaar.rules(message_id))


def test_a_worker_that_is_killed_while_a_retry_waits_loses_nothing(open_bazaar, broker):
    """The waiting message comes back, and its history with it."""
    bazaar = open_bazaar(broker)
    worker = bazaar.start()
    message_id = bazaar.send("later", "waits", ["ConnectionError", "ok"])
    bazaar.wait("event", "TaskRetryScheduled", message_id)
    worker.kill()
    bazaar.start()
    bazaar.wait("done", "waits")

    assert (2, ["backoff"]) == (bazaar.count("run", "later", "waits"), bazaar.rules(message_id))


def test_an_actor_that_must_not_run_twice_does_not_on_rabbitmq(open_bazaar):
    """RabbitMQ marks a message that it delivers again; the call ends, with its catch actor."""
    bazaar = open_bazaar("rabbitmq")
    worker = bazaar.start()
    message_id = bazaar.send("strict", "once", ["sleep:60", "ok"])
    bazaar.wait("run", "strict", "once")
    worker.kill()
    bazaar.start()
    bazaar.wait("caught", message_id)

    assert (1, ["not_idempotent"]) == (bazaar.count("run", "strict", "once"), bazaar.rules(message_id))


def test_a_shutdown_interrupts_an_actor_without_a_charge(open_bazaar, broker):
    """Dramatiq interrupts an actor with `notify_shutdown`, and another worker runs it again."""
    bazaar = open_bazaar(broker)
    worker = bazaar.start()
    message_id = bazaar.send("stoppable", "stopped", ["sleep:60", "ok"])
    bazaar.wait("run", "stoppable", "stopped")
    worker.stop()
    bazaar.start()
    bazaar.wait("done", "stopped")

    assert (2, []) == (bazaar.count("run", "stoppable", "stopped"), bazaar.rules(message_id))


def test_a_deployment_that_changes_the_policy_holds_for_messages_on_their_way(open_bazaar, broker):
    """The counter of the message stays, and the policy of the new worker decides."""
    bazaar = open_bazaar(broker)
    worker = bazaar.start(LATER="9 3s 3s", POLICY="9 3s 3s")
    message_id = bazaar.send("simple", "deployed", ["ConnectionError"])
    bazaar.wait("event", "TaskRetryScheduled", message_id)
    worker.stop()
    bazaar.start(POLICY="1 3s 3s catch recover")
    bazaar.wait("caught", message_id)

    assert ["backoff", "attempts"] == bazaar.rules(message_id)


def test_a_worker_whose_actors_name_a_catch_that_does_not_exist_ends(open_bazaar):
    """It does not start half."""
    worker = open_bazaar("redis").launch(ORPHAN="1")
    wait_for(lambda: not worker.alive, worker.text)

    assert "actor 'orphan' is to be caught by 'nobody', but no actor of this broker has that name" in worker.text()


# ---------------------------------------------------------------------------------------------------------------- hops


@pytest.fixture
def impatient(rabbitmq):
    """Let RabbitMQ close channels that do not acknowledge within 12 s, and look for them each second."""
    rabbitmq.evaluate("application:set_env(rabbit, consumer_timeout, 12000).")
    rabbitmq.evaluate("application:set_env(rabbit, channel_tick_interval, 1000).")
    yield
    rabbitmq.evaluate("application:set_env(rabbit, consumer_timeout, 1800000).")
    rabbitmq.evaluate("application:set_env(rabbit, channel_tick_interval, 60000).")


@pytest.mark.realtime
@pytest.mark.usefixtures("impatient")
def test_a_delay_beyond_the_consumer_timeout_of_rabbitmq_is_kept(open_bazaar, record_property):
    """With hops of 5 s a retry after 20 s runs once, on time, and the channel stays open."""
    bazaar = open_bazaar("rabbitmq", HOP="5s", LATER="3 20s")
    worker = bazaar.start()
    bazaar.send("later", "long", ["ConnectionError", "ok"])
    bazaar.wait("done", "long")
    (first, *_), (second, *_) = bazaar.rows("run", "later", "long")

    record_property(
        "figure", f"Dramatiq on RabbitMQ: a retry after 20 s came after {second - first:.2f} s, in hops of 5 s"
    )
    assert 20.0 <= second - first < 26.0
    assert "delivery acknowledgement" not in worker.text()


@pytest.mark.usefixtures("impatient")
def test_without_hops_rabbitmq_closes_the_channel(open_bazaar):
    """This is the fault that hops cure: the consumer loses its channel, with all messages that wait in it."""
    bazaar = open_bazaar("rabbitmq", LATER="3 20s")
    worker = bazaar.start()
    bazaar.send("later", "long", ["ConnectionError", "ok"])

    wait_for(lambda: "delivery acknowledgement" in worker.text(), worker.text)


@pytest.mark.realtime
def test_hops_on_redis_run_the_actor_once(open_bazaar, record_property):
    """A retry after 7 s in hops of 2 s runs once, and on time."""
    bazaar = open_bazaar("redis", HOP="2s", LATER="3 7s")
    bazaar.start()
    message_id = bazaar.send("later", "long", ["ConnectionError", "ok"])
    bazaar.wait("done", "long")
    (first, *_), (second, *_) = bazaar.rows("run", "later", "long")

    record_property("figure", f"Dramatiq on Redis: a retry after 7 s came after {second - first:.2f} s, in hops of 2 s")
    assert 7.0 <= second - first < 12.0
    assert ["backoff"] == bazaar.rules(message_id)
