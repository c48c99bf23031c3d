"""The promises about Celery on both brokers, with real workers that are killed; for the night."""

from __future__ import annotations

import pytest

from tests.contrib.celery.conftest import SWEEP
from tests.contrib.celery.rig.workers import wait_for
from tests.contrib.celery.test_brokers import compare

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

    record_property("figure", f"Celery: the attempt after a hint of 2 s came after {second - first:.2f} s")
    assert second - first >= 2.0


def test_a_process_that_is_killed_three_times_ends_the_call(running):
    """A task that kills its process runs three times, and its catch task once."""
    task_id = running.send("simple", "killer", ["kill"])

    assert "FAILURE" == running.end_of(task_id)[0]
    running.wait_for_catch(task_id)
    assert 3 == running.count("run", "simple", "killer")
    assert [["TaskLost", "crash"], ["TaskLost", "crash"], ["TaskGaveUp", "poison limit"]] == [
        [row[2], row[4]] for row in running.rows("event") if row[3] == task_id
    ]
    assert 1 == running.count("caught", task_id)


def test_failures_between_lost_processes_reset_their_count(running):
    """Lost processes count in a row, and only failures are charged."""
    script = ["kill", "kill", "ConnectionError", "kill", "kill", "ok"]
    task_id = running.send("simple", "unlucky", script)

    assert ("SUCCESS", "unlucky") == running.end_of(task_id)
    assert ["backoff"] == running.rules(task_id)


def test_a_task_that_must_not_run_twice_does_not_after_its_process_was_killed(running):
    """With `idempotent=False` a killed process ends the call."""
    task_id = running.send("strict", "once", ["kill", "ok"])
    running.wait_for_catch(task_id)

    assert ["not_idempotent"] == running.rules(task_id)
    assert 1 == running.count("run", "strict", "once")


def test_early_acknowledgement_means_at_most_once(running):
    """With `acks_late=False` a killed process is not repeated, and the catch task runs."""
    task_id = running.send("early", "early", ["kill", "ok"])
    running.wait_for_catch(task_id)

    assert ["crash"] == running.rules(task_id)
    assert 1 == running.count("run", "early", "early")


def test_a_hard_time_limit_calls_the_catch_task_once(running):
    """Celery never repeats a task after its hard time limit; both signals of Celery lead to one catch task."""
    task_id = running.send("limited", "stuck", ["sleep:60"])
    running.wait_for_catch(task_id)

    assert "FAILURE" == running.end_of(task_id)[0]
    assert ["time_limit"] == running.rules(task_id)
    assert (1, 1) == (running.count("run", "limited", "stuck"), running.count("caught", task_id))


def test_a_soft_time_limit_is_a_failure_that_the_policy_retries(running):
    """A soft time limit counts as an attempt, and is repeated."""
    task_id = running.send("softly", "slow", ["sleep:60", "ok"])

    assert ("SUCCESS", "slow") == running.end_of(task_id)
    assert ["backoff"] == running.rules(task_id)


def test_chords_and_chains_wait_for_tasks_that_are_retried(running):
    """A chord of three parts that fail once ends once, and a chain goes on with the result."""
    running.send("begin", "chord", "c1", "c2", "c3")
    running.send("begin", "chain", "c4")

    assert [["c1", "c2", "c3"]] == [sorted(row[2]) for row in running.wait("total")]
    assert [["chain", "c4"]] == [row[2:] for row in running.wait("follow")]


def test_a_message_that_expires_ends_the_call(running):
    """A retry after the expiry of the message is an end with a catch task, and not a message that is dropped."""
    task_id = running.send("due", "expiring", ["ConnectionError"], expires=2.5)
    running.wait_for_catch(task_id)

    assert "deadline" == running.rules(task_id)[-1]
    assert "FAILURE" == running.end_of(task_id)[0]


def test_a_deadline_that_truncates_ends_without_another_call(running):
    """The last wait ends at the deadline, where the task is not called again."""
    task_id = running.send("brief", "brief", ["ConnectionError"])

    assert "FAILURE" == running.end_of(task_id)[0]
    assert ["backoff", "deadline", "deadline"] == running.rules(task_id)
    assert 2 == running.count("run", "brief", "brief")


def test_snoozes_and_retries_by_hand_are_not_charged(running):
    """Three snoozes and three retries by hand leave the single retry of the policy."""
    snoozed = running.send("softly", "sleepy", ["Snooze:0.1", "Snooze:0.1", "Snooze:0.1", "ConnectionError", "ok"])
    by_hand = running.send("by_hand", "hand")

    assert ("SUCCESS", "sleepy") == running.end_of(snoozed)
    assert ["backoff"] == running.rules(snoozed)
    assert ("SUCCESS", "done") == running.end_of(by_hand)
    assert [] == running.rules(by_hand)


def test_a_cancelled_task_has_no_catch(running):
    """Cancel ends the call without a catch task and without another attempt."""
    cancelled = running.send("simple", "cancelled", ["Cancel"])
    running.wait("run", "simple", "cancelled")
    after = running.send("simple", "after", ["GiveUp"])
    running.wait_for_catch(after)

    assert (1, 0) == (running.count("run", "simple", "cancelled"), running.count("caught", cancelled))


def test_a_catch_that_fails_once_is_repeated(running):
    """A catch task is repeated until it succeeds, with the same request."""
    task_id = running.send("softly", "recover fails", ["GiveUp"])
    running.wait_for_catch(task_id)
    first, second = running.rows("catch", "shop.softly", {"key": "recover fails", "script": ["GiveUp"]})

    assert first[2:] == second[2:]
    assert ["permanent", "catch"] == running.rules(task_id) + running.rules(f"{task_id}-catch")


def test_a_catch_that_kills_its_process_is_repeated(running):
    """A catch task survives the death of its process."""
    task_id = running.send("limited", "recover dies", ["GiveUp"])
    running.wait_for_catch(task_id)

    assert 2 == running.count("catch", "shop.limited", {"key": "recover dies", "script": ["GiveUp"]})


def test_signals_of_celery_fire_as_before(running):
    """Tools that listen to Celery's signals see each retry and the last failure."""
    task_id = running.send("softly", "watched", ["ConnectionError"])
    running.wait_for_catch(task_id)
    running.wait("signal", "task_failure", task_id)

    assert (1, 1) == (running.count("signal", "task_retry", task_id), running.count("signal", "task_failure", task_id))


def test_several_arguments_reach_the_catch_task_by_name(running):
    """A task of several arguments has a mapping of names as its request."""
    task_id = running.send("several", 1, kwargs={"second": 2})
    running.wait_for_catch(task_id)

    assert [{"first": 1, "second": 2}] == [row[2] for row in running.rows("catch", "shop.several")]


# --------------------------------------------------------------------------------------------- workers that are killed


def options_of(broker: str) -> dict[str, str]:
    """Return the options with which a dead worker is noticed within seconds: on RabbitMQ it is at once."""
    return {"TRANSPORT": SWEEP, "HOP": "1900ms"} if broker == "redis" else {}


def test_a_killed_worker_loses_nothing_and_charges_nothing(open_shop, broker):
    """A worker is killed while one task runs and another one waits for its retry: both succeed on the next worker."""
    shop = open_shop(broker, **options_of(broker))
    first = shop.start()
    running_id = shop.send("simple", "running", ["sleep:3", "ok"])
    waiting_id = shop.send("later", "waiting", ["ConnectionError", "ok"])
    shop.wait("run", "simple", "running")
    shop.wait("event", "TaskRetryScheduled", waiting_id)
    # What the process of this one has done before is acknowledged when it has ended.
    shop.end_of(shop.send("simple", "marker", ["ok"]))
    first.kill()
    shop.start()

    assert ("SUCCESS", "running") == shop.end_of(running_id)
    assert ("SUCCESS", "waiting") == shop.end_of(waiting_id)
    assert [] == shop.rules(running_id)
    assert ["backoff"] == shop.rules(waiting_id)
    assert 2 == shop.count("run", "later", "waiting")


def test_a_task_that_must_not_run_twice_does_not_after_its_worker_was_killed(open_shop, broker):
    """With `idempotent=False` a message that a dead worker had ends the call on the next one."""
    shop = open_shop(broker, **options_of(broker))
    first = shop.start()
    task_id = shop.send("strict", "strict", ["sleep:3", "ok"])
    shop.wait("run", "strict", "strict")
    first.kill()
    shop.start()
    shop.wait_for_catch(task_id)

    assert ["not_idempotent"] == shop.rules(task_id)
    assert 1 == shop.count("run", "strict", "strict")


def test_a_deployment_keeps_a_retry_that_waits(open_shop, broker):
    """A worker that is stopped gives the waiting message back, and the next one takes it with its past."""
    shop = open_shop(broker, **options_of(broker))
    first = shop.start()
    task_id = shop.send("later", "deployed", ["ConnectionError", "ok"])
    shop.wait("event", "TaskRetryScheduled", task_id)
    first.stop()
    shop.start()

    assert ("SUCCESS", "deployed") == shop.end_of(task_id)
    assert 2 == shop.count("run", "later", "deployed")


def test_a_deployment_keeps_a_retry_that_must_not_run_twice(open_shop, broker):
    """A message that comes back before it is due has not begun: `idempotent=False` lets it run."""
    shop = open_shop(broker, **options_of(broker))
    first = shop.start()
    task_id = shop.send("strict_later", "deployed", ["ConnectionError", "ok"])
    shop.wait("event", "TaskRetryScheduled", task_id)
    first.stop()
    shop.start()

    assert ("SUCCESS", "deployed") == shop.end_of(task_id)
    assert ["backoff"] == shop.rules(task_id)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_other_pools_decide_alike(open_shop, broker, pool):
    """Rules, catch tasks and messages are the same in a pool of threads and in one without."""
    shop = open_shop(broker)
    shop.start("-P", pool)
    compare(shop, 20)
    task_id = shop.send("simple", "recover fails", ["GiveUp"])
    shop.wait_for_catch(task_id)


# --------------------------------------------------------------------------------------------------------- long delays


@pytest.mark.realtime
def test_a_delay_beyond_the_visibility_timeout_of_redis_runs_once(open_shop, record_property):
    """With hops a retry after 15 s runs once and on time, although Redis delivers messages again after 4 s."""
    shop = open_shop("redis", TRANSPORT=SWEEP, HOP="1900ms")
    workers = [shop.start("-c", "1") for _ in range(2)]
    shop.send("later", "long", ["ConnectionError", "ok"])
    (first, *_), (second, *_) = shop.wait("run", "later", "long", times=2)
    # A second copy would have come by now.
    probe = shop.send("later", "probe", ["ConnectionError", "ok"])
    shop.end_of(probe)

    record_property(
        "figure", f"Celery on Redis: a retry after 15 s came after {second - first:.2f} s, in hops of 1.9 s"
    )
    assert 15.0 <= second - first < 20.0
    assert 2 == shop.count("run", "later", "long")
    assert all(each.alive for each in workers)


@pytest.mark.realtime
def test_without_hops_redis_runs_a_delayed_task_several_times(open_shop):
    """This is the fault of Redis that hops cure: the same delay in one message is delivered to several workers."""
    shop = open_shop("redis", TRANSPORT=SWEEP, HOP="10m", UNCHECKED="1")
    for _ in range(2):
        shop.start("-c", "1")
    shop.send("later", "long", ["ConnectionError", "ok"])
    shop.wait("run", "later", "long", times=3)


def test_a_worker_does_not_start_with_a_hop_that_is_too_long(open_shop):
    """The worker ends with both numbers."""
    shop = open_shop("redis", TRANSPORT=SWEEP, HOP="2s")
    worker = shop.launch()
    wait_for(lambda: not worker.alive, worker.text)

    assert worker.logged("hop='2s' is not below half of the visibility timeout of the broker, 4s")


@pytest.fixture
def impatient(rabbitmq):
    """Let RabbitMQ close channels that do not acknowledge within 12 s, and look for them each second."""
    rabbitmq.evaluate("application:set_env(rabbit, consumer_timeout, 12000).")
    rabbitmq.evaluate("application:set_env(rabbit, channel_tick_interval, 1000).")
    yield
    rabbitmq.evaluate("application:set_env(rabbit, consumer_timeout, 1800000).")
    rabbitmq.evaluate("application:set_env(rabbit, channel_tick_interval, 60000).")


@pytest.mark.realtime
def test_a_delay_beyond_the_consumer_timeout_of_rabbitmq_succeeds(open_shop, impatient, record_property):
    """With hops of 5 s a retry after 30 s succeeds on time, and the channel stays open."""
    shop = open_shop("rabbitmq", HOP="5s")
    worker = shop.start()
    task_id = shop.send("much_later", "long", ["ConnectionError", "ok"])

    assert ("SUCCESS", "long") == shop.end_of(task_id)
    (first, *_), (second, *_) = shop.rows("run", "much_later", "long")
    record_property(
        "figure", f"Celery on RabbitMQ: a retry after 30 s came after {second - first:.2f} s, in hops of 5 s"
    )
    assert 30.0 <= second - first < 36.0
    assert not worker.logged("PRECONDITION_FAILED")


@pytest.mark.realtime
def test_without_hops_rabbitmq_closes_the_channel(open_shop, impatient):
    """This is the fault that hops cure: the worker that keeps the message for longer loses its channel."""
    shop = open_shop("rabbitmq", HOP="10m")
    worker = shop.start()
    shop.send("much_later", "long", ["ConnectionError", "ok"])

    wait_for(lambda: worker.logged("PRECONDITION_FAILED"), worker.text)
