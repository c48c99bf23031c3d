"""Tasks under a policy without a broker: eager calls, direct calls, and the messages that would be sent."""

from __future__ import annotations

import inspect
import logging
from datetime import timedelta

import pytest
from celery import Celery
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
from kombu.exceptions import OperationalError

import redrive
from redrive import observe
from redrive.contrib.celery import CatchRequest, PolicyTask
from redrive.errors import CircuitOpen, OutcomeUnknown, PolicyValueError, RedriveError
from redrive.policy import Backoff, History, Policy
from redrive.policy.breaker import BreakerSettings
from redrive.policy.carried import Carried
from redrive.retrying import breaker
from redrive.retrying.shared import isolated
from redrive.testing import VirtualClock, using
from tests.policy.strategies import START


@pytest.fixture
def app():
    """Return an app without a broker."""
    return Celery("tests", broker="memory://", backend="cache+memory://", task_cls=PolicyTask, set_as_current=False)


@pytest.fixture
def clock():
    """Use a virtual clock."""
    clock = VirtualClock(START)
    with using(clock=clock, sample=0.5):
        yield clock


@pytest.fixture
def events():
    """Return the events of tasks."""
    found: list[observe.TaskEvent] = []
    with observe.only(found.append):
        yield found


def declare(app, function, name="shop.charge", **options):
    """Declare a task. Celery wants a function of Python with a name."""

    def charge(*args, **kwargs):
        return function(*args, **kwargs)

    takes_all = inspect.isbuiltin(function) or "<lambda>" in getattr(function, "__name__", "")
    app.task(name=name, shared=False, **options)(charge if takes_all else function)
    return app.tasks[name]


def fails(error):
    """Return a function that fails."""

    def charge(*args, **kwargs):
        raise error

    return charge


class Sent:
    """The messages that a task sends, instead of a broker.

    Args:
        monkeypatch: replaces the method of Celery that sends.
        broken: the error of the broker.
    """

    def __init__(self, monkeypatch, broken=None):
        self.messages = []

        def send(task, args=None, kwargs=None, **options):
            if broken is not None:
                raise broken
            self.messages.append((task.name, args, options))

        monkeypatch.setattr("celery.app.task.Task.apply_async", send)

    def run(self, task, *args, headers=None, expires=None, redelivered=False, **kwargs):
        """Run one attempt as a worker does."""
        task.push_request(
            args=args,
            kwargs=kwargs,
            called_directly=False,
            delivery_info={"redelivered": redelivered, "exchange": "", "routing_key": "q"},
            expires=expires,
            headers=headers,
            id="id-1",
        )
        try:
            return task.run(*args, **kwargs)
        finally:
            task.pop_request()

    @property
    def due(self):
        """The headers of the last message, which is due now."""
        headers = self.messages[-1][2]["headers"]
        return {**headers, "redrive": {**headers["redrive"], "due": None}}

    @property
    def header(self):
        """What the last message carries."""
        return Carried.from_dict(self.messages[-1][2]["headers"]["redrive"])


@pytest.fixture
def sent(monkeypatch):
    """Return the messages that are sent."""
    return Sent(monkeypatch)


# ---------------------------------------------------------------------------------------------------- without a worker


def test_a_direct_call_is_one_of_a_plain_function(app):
    """`charge(7)` runs the function once and raises its error."""
    calls = []
    charge = declare(app, calls.append, retry="5 1s")
    charge(7)
    refused = declare(app, fails(OSError("x")), "shop.refused", retry="5 1s")

    assert [7] == calls
    with pytest.raises(OSError, match="x"):
        refused()


def test_an_eager_call_repeats_at_once_and_calls_its_catch(app, events):
    """`apply` makes all attempts in the process of the caller, without waits."""
    caught = []
    charge = declare(app, fails(ConnectionError("down")), retry="2 1h catch refund")
    declare(app, caught.append, "shop.refund")
    result = charge.apply((7,))

    (request,) = caught
    assert "FAILURE" == result.state
    assert ["TaskRetryScheduled", "TaskRetryScheduled", "TaskGaveUp"] == [type(each).__name__ for each in events]
    assert ["backoff", "backoff", "attempts"] == [each.rule for each in request.attempts]
    assert CatchRequest("shop.charge", request.request, "down", request.attempts, result.id) == request


def test_an_eager_catch_that_fails_is_not_repeated(app):
    """An eager catch would be repeated without end, so that its error is that of its own result only."""
    charge = declare(app, fails(ConnectionError("down")), retry="1 1s catch refund")
    declare(app, fails(OSError("no refund")), "shop.refund")

    assert "down" == str(charge.apply((7,)).result)


def test_a_task_without_a_policy_is_one_of_celery(app):
    """A task without `retry=` keeps all options of Celery, and its own retries."""
    plain = declare(
        app, fails(OSError("x")), autoretry_for=(OSError,), retry_backoff=True, max_retries=2, retry_jitter=False
    )

    assert None is plain.policy
    assert (2, True) == (plain.max_retries, plain.retry_backoff)
    assert not plain.acks_late
    assert "FAILURE" == plain.apply().state


def test_the_method_of_celery_stays(app):
    """The option `retry` does not hide `self.retry()`, which is not charged and keeps the past of the call."""
    seen = []

    def charge(self):
        seen.append((self.request.headers or {}).get("redrive"))
        if len(seen) == 1:
            raise ConnectionError("down")
        if len(seen) == 2:
            raise self.retry(countdown=0)
        raise ConnectionError("down")

    app.task(name="by hand", bind=True, shared=False, retry="2 1s")(charge).apply()

    assert [None, 1, 1, 2] == [each and each["n"] for each in seen]


def test_a_method_of_a_base_class_is_a_part_of_the_attempt(app):
    """`super().run()` in a task that is a class makes no attempt of its own."""
    calls = []

    class Base(PolicyTask):
        name = "base"
        retry = "2 1s"

        def run(self, number):
            calls.append(number)
            raise ConnectionError("down")

    class Charge(Base):
        name = "charge"

        def run(self, number):
            return super().run(number)

    app.register_task(Charge())
    app.tasks["charge"].apply((7,))

    assert [7, 7, 7] == calls


# ----------------------------------------------------------------------------------------------------------- decisions


def test_a_failed_attempt_sends_the_next_one_with_its_past(app, sent, clock):
    """The message of the next attempt has what the policy keeps, and waits as long as was decided."""
    charge = declare(app, fails(ConnectionError("down")), retry="5 2s 10m")
    with pytest.raises(Retry):
        sent.run(charge, 7, headers={"stamp": "kept"})

    ((name, args, options),) = sent.messages
    assert ("shop.charge", (7,), 2.0, 1, "id-1", "kept") == (
        name,
        args,
        options["countdown"],
        options["retries"],
        options["task_id"],
        options["headers"]["stamp"],
    )
    assert 2 == sent.header.history.attempts
    assert ["down"] == [each.error for each in sent.header.attempts]


def test_a_long_wait_takes_hops_that_are_not_charged(app, sent, clock):
    """A message that comes before it is due is sent on without a call of the function, as often as needed."""
    calls = []

    def charge(number):
        calls.append(number)
        raise ConnectionError("down")

    task = declare(app, charge, retry="5 25m", hop="10m")
    with pytest.raises(Retry):
        sent.run(task, 7)
    for _ in range(2):
        clock.sleep(sent.messages[-1][2]["countdown"])
        with pytest.raises(Retry):
            sent.run(task, 7, headers=sent.messages[-1][2]["headers"])

    assert [600.0, 600.0, 300.0] == [options["countdown"] for _, _, options in sent.messages]
    assert [7] == calls
    assert 2 == sent.header.history.attempts


def test_a_message_that_comes_a_little_early_waits(app, sent, clock):
    """A timer of the worker that fires some milliseconds early does not make the attempt early."""
    times = []
    task = declare(app, lambda: times.append(clock.now()), retry="5 1s")
    early = Carried(History(2, START), START + timedelta(milliseconds=30))
    sent.run(task, headers={"redrive": early.to_dict()})

    assert [early.due] == times


def test_what_a_handler_decides_is_done(app, sent, clock, events):
    """Snooze and Cancel are no failures, GiveUp is final, RetryAfter sets the delay."""
    for error, expected in [
        (redrive.Snooze("90s"), Retry),
        (redrive.Cancel("not needed"), Ignore),
        (redrive.GiveUp("stolen card"), redrive.GiveUp),
        (redrive.RetryAfter("7s"), Retry),
    ]:
        task = declare(app, fails(error), type(error).__name__, retry="5 1s")
        with pytest.raises(expected):
            sent.run(task)

    assert [90.0, 7.0] == [options["countdown"] for _, _, options in sent.messages]
    assert [("TaskGaveUp", "permanent"), ("TaskRetryScheduled", "hint")] == [
        (type(each).__name__, each.rule) for each in events
    ]
    assert 2 == sent.header.history.attempts


def test_exceptions_of_celery_pass(app, sent):
    """A task that decides by Celery's own exceptions is not decided again."""
    for error in (Ignore(), Reject("no", requeue=False)):
        with pytest.raises(type(error)):
            sent.run(declare(app, fails(error), type(error).__name__, retry="5 1s"))

    assert [] == sent.messages


def test_a_soft_time_limit_is_a_timeout_in_flight(app, sent, events):
    """The effect of a call that was cut off is unknown: it is repeated if the task is idempotent."""
    with pytest.raises(Retry):
        sent.run(declare(app, fails(SoftTimeLimitExceeded()), "a", retry="5 1s"))
    with pytest.raises(SoftTimeLimitExceeded):
        sent.run(declare(app, fails(SoftTimeLimitExceeded()), "b", retry=Policy(attempts=5, idempotent=False)))

    assert ["TIMEOUT", "TIMEOUT"] == [each.failure.reason for each in events]
    assert ["backoff", "not_idempotent"] == [each.rule for each in events]


def test_the_expiry_of_a_message_is_a_deadline(app, sent, clock, events):
    """A retry or a snooze after which Celery would drop the message ends the call instead."""
    expires = (START + timedelta(seconds=10)).isoformat()
    with pytest.raises(ConnectionError):
        sent.run(declare(app, fails(ConnectionError("x")), "a", retry="5 10s"), expires=expires)
    with pytest.raises(RedriveError, match="the message expires at 2026-01-01 00:00:10"):
        sent.run(declare(app, fails(redrive.Snooze("1m")), "b", retry="5 1s"), expires=expires)
    with pytest.raises(Retry):
        sent.run(declare(app, fails(ConnectionError("x")), "c", retry="5 9s"), expires=expires)

    assert ["deadline", "deadline", "backoff"] == [each.rule for each in events]


def test_an_attempt_does_not_start_after_the_deadline_of_its_policy(app, sent, clock):
    """A message that comes too late ends the call; with `truncate` that is how it ends."""
    policy = Policy(attempts=9, deadline="5s", backoff=Backoff.constant("3s"), jitter="none", over_deadline="truncate")
    task = declare(app, fails(ConnectionError("x")), retry=policy)
    headers = None
    for _ in range(2):
        with pytest.raises(Retry):
            sent.run(task, headers=headers)
        headers = sent.messages[-1][2]["headers"]
        clock.sleep(sent.messages[-1][2]["countdown"])

    with pytest.raises(RedriveError, match="the deadline of 5s had passed"):
        sent.run(task, headers=headers)


def test_a_result_that_the_policy_rejects_is_a_failure(app, sent, events):
    """`on_result` is asked, and a rejected result at the end is an error."""
    policy = Policy(attempts=2, on_result=lambda value: value is None, on=())
    task = declare(app, lambda: None, retry=policy)
    with pytest.raises(Retry):
        sent.run(task)
    with pytest.raises(RedriveError, match="result None counts as a failure"):
        sent.run(task, headers=sent.due)

    assert ["backoff", "attempts"] == [each.rule for each in events]


def test_a_retried_call_in_a_task_leaves_its_retries_to_the_task(app, sent):
    """Two layers that would retry one failure do not multiply their attempts."""
    calls = []

    @redrive.retry("4 1ms", on=ConnectionError)
    def call():
        calls.append(1)
        raise ConnectionError("down")

    def charge():
        call()

    with pytest.raises(Retry):
        sent.run(declare(app, charge, "a", retry="5 1s"))
    # Nothing else would retry it.
    with pytest.raises(ConnectionError):
        sent.run(declare(app, charge, "b"))

    assert 1 + 5 == len(calls)


def test_hooks_of_the_policy_are_called(app, sent, caplog):
    """`on_retry` and `on_give_up` get the details; an error in one is logged and changes nothing."""
    seen = []

    def broken(details):
        seen.append(details)
        raise ValueError("in the hook")

    policy = Policy(attempts=2, on_retry=broken, on_give_up=seen.append)
    task = declare(app, fails(ConnectionError("x")), retry=policy)
    with pytest.raises(Retry):
        sent.run(task, 7, cents=3)
    with pytest.raises(ConnectionError):
        sent.run(task, 7, cents=3, headers=sent.due)

    assert [(1, (7,), {"cents": 3}, "backoff"), (2, (7,), {"cents": 3}, "attempts")] == [
        (each.attempt, each.args, each.kwargs, each.rule) for each in seen
    ]
    assert "a hook of its policy failed" in caplog.text


def test_a_classifier_decides_and_one_that_fails_ends_the_call(app, sent, events):
    """A function as `on` is asked in the worker; its own error is final, and named."""
    with pytest.raises(Retry):
        sent.run(declare(app, fails(OSError("x")), "a", retry=Policy(on=lambda error: "BUSY")))
    with pytest.raises(OSError):
        sent.run(declare(app, fails(OSError("x")), "b", retry=Policy(on=lambda error: 1 / 0)))

    assert ["BUSY", "backoff"] == [events[0].failure.reason, events[0].rule]
    assert ("permanent", True) == (events[1].rule, "division by zero" in events[1].why)


# ------------------------------------------------------------------------------------------------------------- brokers


def test_a_message_that_cannot_be_sent_returns_to_its_queue(app, monkeypatch):
    """If the broker refuses the next message, the present one is not acknowledged."""
    sent = Sent(monkeypatch, OperationalError("gone"))
    with pytest.raises(Reject) as refused:
        sent.run(declare(app, fails(ConnectionError("x")), "a", retry="5 1s"))
    declare(app, print, "refund")
    with pytest.raises(Reject) as lost:
        sent.run(declare(app, fails(redrive.GiveUp("x")), "b", retry="5 1s catch refund"))

    assert (True, True) == (refused.value.requeue, lost.value.requeue)


def test_a_task_that_must_not_run_twice_gives_up_after_a_second_delivery(app, sent, events):
    """With `idempotent=False` a message that a lost worker had is not executed again."""
    policy = Policy(attempts=5, idempotent=False)
    with pytest.raises(OutcomeUnknown, match="not repeated"):
        sent.run(declare(app, print, "a", retry=policy), redelivered=True)
    # Acknowledged before it ran, so that it has not begun.
    assert None is sent.run(declare(app, lambda: None, "b", retry=policy, acks_late=False), redelivered=True)
    assert None is sent.run(declare(app, lambda: None, "c", retry="5 1s"), redelivered=True)

    assert ["not_idempotent"] == [each.rule for each in events]


def test_a_message_of_a_newer_version_is_refused(app, sent, events):
    """During a deployment an old worker does not guess what a new one has written: the catch is called."""
    declare(app, print, "refund")
    with pytest.raises(PolicyValueError, match="has the form 2, and this version of redrive reads only the form 1"):
        sent.run(declare(app, print, retry="5 1s catch refund"), headers={"redrive": {"v": 2}})

    assert [("permanent", "BAD_PAYLOAD")] == [(each.rule, each.failure.reason) for each in events]
    assert ["refund"] == [name for name, _, _ in sent.messages]


def test_a_changed_policy_decides_about_messages_in_flight(app, sent):
    """A message keeps its counters, and the policy of the worker that failed decides about them."""
    with pytest.raises(Retry):
        sent.run(
            declare(app, fails(ConnectionError("x")), "a", retry=Policy(attempts=9, backoff=Backoff.constant("1s")))
        )
    task = declare(app, fails(ConnectionError("x")), "b", retry="1 1s")
    with pytest.raises(ConnectionError):
        sent.run(task, headers=sent.due)


def test_an_open_breaker_puts_the_message_off(app, sent):
    """While a breaker is open the function is not called, and nothing is charged."""
    with isolated():
        bank = breaker("bank", BreakerSettings(volume_threshold=1, error_threshold=1, sleep_window="30s"))
        task = declare(app, fails(ConnectionError("x")), retry=Policy(attempts=9, breaker="bank"))
        with pytest.raises(Retry):
            sent.run(task)
        with pytest.raises(Retry) as off:
            sent.run(task, headers=sent.due)

        assert bank.circuit.status.name == "OPEN"
        assert isinstance(off.value.__cause__, CircuitOpen)
        assert 2 == sent.header.history.attempts


# ------------------------------------------------------------------------------------------------------------ the catch


def test_several_arguments_are_a_mapping(app, sent):
    """A catch request has the only argument of a task, or all by name."""
    declare(app, print, "refund")

    def one(number):
        raise redrive.GiveUp("x")

    def two(number, cents=5):
        raise redrive.GiveUp("x")

    for function, args in [(one, (7,)), (two, (7, 8)), (two, (7,)), (one, ())]:
        with pytest.raises((redrive.GiveUp, TypeError)):
            sent.run(declare(app, function, f"{function.__name__}{args}", retry="5 1s catch refund"), *args)

    assert [7, {"number": 7, "cents": 8}, {"number": 7}, {"args": []}] == [
        args[0]["request"] for _, args, _ in sent.messages
    ]


def test_a_catch_that_fails_is_repeated_at_its_interval(app, sent, clock, events):
    """The interval is that of the policy that gave up, and longer once the catch is stuck."""
    declare(app, fails(OSError("no")), "shop.refund")
    charge = declare(app, fails(redrive.GiveUp("x")), retry="2 1s catch refund")
    with pytest.raises(redrive.GiveUp):
        sent.run(charge, 7)
    countdowns = []
    for _ in range(7):
        _, args, options = sent.messages[-1]
        clock.sleep(options.get("countdown", 0))
        with pytest.raises(Retry):
            sent.run(app.tasks["shop.refund"], *args, headers=options["headers"])
        countdowns.append(sent.messages[-1][2]["countdown"])

    assert "id-1-catch" == sent.messages[0][2]["task_id"]
    assert [4.0, 4.0, 4.0, 4.0, 4.0, 8.0, 16.0] == countdowns
    assert {"catch"} == {each.rule for each in events[1:]}


def test_events_are_log_records(app, sent, caplog):
    """The logger is `redrive.celery`, and a record has the fields of the event."""
    with caplog.at_level(logging.WARNING, "redrive.celery"), pytest.raises(Retry):
        sent.run(declare(app, fails(ConnectionError("x")), retry="5 1s"))

    (record,) = [each for each in caplog.records if each.name == "redrive.celery"]
    assert "shop.charge[id-1] is retried in 1s (backoff): attempt 1 failed: ConnectionError: x" == record.getMessage()
    assert "id-1" == record.task_id
