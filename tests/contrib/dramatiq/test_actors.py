"""Actors under a policy without a broker: what Dramatiq's worker does with a message, in virtual time."""

from __future__ import annotations

import logging
from datetime import timedelta
from queue import Empty, PriorityQueue

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import AgeLimit, Callbacks, Pipelines, Shutdown, TimeLimit, TimeLimitExceeded
from dramatiq.rate_limits.backends import StubBackend as RateLimits
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend
from dramatiq.worker import ConsumerThread, WorkerThread, _WorkQueueItem

import redrive
from redrive import observe
from redrive.clock import SystemClock
from redrive.contrib.dramatiq import CatchRequest, PolicyRetries
from redrive.policy import Backoff, Policy, Stage
from redrive.policy.breaker import BreakerSettings
from redrive.policy.carried import Carried
from redrive.retrying import breaker
from redrive.retrying.shared import isolated
from redrive.testing import VirtualClock, using
from tests.policy.strategies import START


class Bench(StubBroker):
    """A broker in memory, and a worker whose threads are not started.

    Args:
        *middleware: further middleware, behind that of redrive.
        hop: of redrive's middleware.
    """

    def __init__(self, *middleware, **options):
        super().__init__(middleware=[PolicyRetries(**options), *middleware])
        self.sent = []
        self.settled = []
        self.broken = []
        self._work = PriorityQueue()
        self._consumers = {}
        self._thread = WorkerThread(broker=self, consumers=self._consumers, work_queue=self._work, worker_timeout=1)

    def enqueue(self, message, *, delay=None):
        """Send a message, and note the delay in milliseconds."""
        if self.broken:
            raise self.broken.pop()
        self.sent.append((message.actor_name, delay))
        return super().enqueue(message, delay=delay)

    def actor(self, function=None, **options):
        """Declare an actor."""
        return dramatiq.actor(function, broker=self, **options) if function else dramatiq.actor(broker=self, **options)

    def ack(self, message):
        """Note an acknowledgement."""
        self.settled.append((message.actor_name, "ack"))

    def nack(self, message):
        """Note a rejection."""
        self.settled.append((message.actor_name, "nack"))

    def take(self, queue="default"):
        """Return the next message of a queue, or of its delayed messages."""
        for name in (queue, f"{queue}.DQ"):
            try:
                message = dramatiq.Message.decode(self.queues[name].get_nowait())
            except Empty:
                continue
            message.options.pop("eta", None)
            return dramatiq.broker.MessageProxy(message.copy(queue_name=queue))
        return None

    def step(self, clock=None, *, redelivered=False):
        """Process the next message; advance the clock to its start before. Return the message, or None."""
        message = self.take()
        if message is None:
            return None
        header = message.options.get("redrive", {})
        if clock is not None and header.get("v") == 1:
            due = Carried.from_dict(header).due
            clock.advance(max(due - clock.now(), timedelta(0)))
        message.redelivered = redelivered
        consumer = self._consumers.setdefault(
            "default",
            ConsumerThread(broker=self, queue_name="default", prefetch=1, work_queue=self._work, worker_timeout=1),
        )
        consumer.consumer = self
        self._work.put(_WorkQueueItem(0, message))
        self._thread.process_message(self._work.get().message)
        return message

    def run(self, clock=None):
        """Process messages until there are no more."""
        while self.step(clock) is not None:
            pass


@pytest.fixture
def clock():
    """Use a virtual clock."""
    clock = VirtualClock(START)
    with using(clock=clock, sample=0.5):
        yield clock


@pytest.fixture
def events():
    """Return the events of actors."""
    found: list[observe.TaskEvent] = []
    with observe.only(found.append):
        yield found


@pytest.fixture
def bench():
    """Return a broker and a worker."""
    return Bench()


def scripted(bench, *script, name="charge", **options):
    """Declare an actor that does one thing after another; return its list of calls."""
    calls = []

    @bench.actor(actor_name=name, **options)
    def actor(invoice=None):
        calls.append(invoice)
        word = script[min(len(calls), len(script)) - 1]
        if isinstance(word, BaseException):
            raise word
        return word

    return calls


def caught(bench, name="refund"):
    """Declare a catch actor; return its list of requests."""
    requests = []

    @bench.actor(actor_name=name)
    def catch(request: CatchRequest):
        requests.append(request)

    return requests


def test_a_failure_is_retried_as_the_policy_decides(bench, clock, events):
    """The delays are those of the policy, and the end is a dead letter, with the catch actor before it."""
    calls, requests = scripted(bench, ConnectionError("down"), retry="2 1s catch refund"), caught(bench)
    sent = bench.actors["charge"].send("inv-7")
    bench.run(clock)

    assert ["inv-7"] * 3 == calls
    assert [("charge", None), ("charge", 1000), ("charge", 2000), ("refund", None)] == bench.sent
    assert [("charge", "ack"), ("charge", "ack"), ("charge", "nack"), ("refund", "ack")] == bench.settled
    (request,) = requests
    assert ("charge", "inv-7", "down", sent.message_id) == (
        request.task,
        request.request,
        request.error,
        request.task_id,
    )
    assert ["backoff", "backoff", "attempts"] == [each.rule for each in request.attempts]
    assert [("TaskRetryScheduled", 1), ("TaskRetryScheduled", 2), ("TaskGaveUp", 3)] == [
        (type(each).__name__, each.attempt) for each in events
    ]
    assert {"redrive.dramatiq"} == {each.channel for each in events}
    assert "refund" == events[-1].catch


def test_an_actor_has_its_policy(bench):
    """A directive becomes a policy where the actor is declared."""
    scripted(bench, None, retry="2 1s")

    assert [1.0, 2.0] == bench.actors["charge"].options["retry"].delays()


def test_an_actor_without_a_policy_fails_at_once(bench, clock):
    """Without the option there is no retry, as with `max_retries=0`."""
    calls = scripted(bench, ConnectionError("down"))
    bench.actors["charge"].send()
    bench.run(clock)

    assert (1, [("charge", "nack")]) == (len(calls), bench.settled)


def test_the_middleware_may_have_a_policy_for_all_actors(clock):
    """Actors with a policy of their own have that, and `retry=None` switches it off."""
    bench = Bench(retry="1 1s")
    counts = [
        scripted(bench, OSError("x"), name="usual"),
        scripted(bench, OSError("x"), name="own", retry="3 1s"),
        scripted(bench, OSError("x"), name="none", retry=None),
    ]
    for each in list(bench.actors.values()):
        each.send()
    bench.run(clock)

    assert [2, 4, 1] == [len(each) for each in counts]


def test_a_hint_is_a_lower_bound(bench, clock):
    """A delay that the exception asks for is longer than that of the policy."""

    class BusyError(Exception):
        """A server asks for a pause."""

        retry_after = 2.0

    scripted(bench, BusyError("wait"), retry="1 100ms")
    bench.actors["charge"].send()
    bench.run(clock)

    assert ("charge", 2000) == bench.sent[1]


@pytest.mark.parametrize(
    ("error", "delay", "rules"),
    [
        (redrive.RetryAfter("5s"), 5000, ["hint", "attempts"]),
        (dramatiq.Retry("later", delay=7000), 7000, ["hint", "attempts"]),
        (dramatiq.Retry("later"), 1000, ["backoff", "attempts"]),
    ],
)
def test_signals_set_the_delay(bench, clock, events, error, delay, rules):
    """`RetryAfter` of redrive and `Retry` of Dramatiq give the delay; they are charged."""
    scripted(bench, error, retry="1 1s")
    bench.actors["charge"].send()
    bench.run(clock)

    assert delay == bench.sent[1][1]
    assert rules == [each.rule for each in events]


def test_give_up_ends_the_call_once(bench, clock):
    """A final failure is not repeated, and the catch actor runs once."""
    calls, requests = scripted(bench, redrive.GiveUp("stolen"), retry="5 1s catch refund"), caught(bench)
    bench.actors["charge"].send(1)
    bench.run(clock)

    assert (1, 1) == (len(calls), len(requests))


def test_snooze_is_not_charged(bench, clock, events):
    """A snooze puts the call off, also of an actor without a policy."""
    script = (redrive.Snooze("3s"), redrive.Snooze("3s"), OSError("x"), None)
    calls, plain = scripted(bench, *script, retry="1 1s"), scripted(bench, redrive.Snooze("3s"), None, name="plain")
    bench.actors["charge"].send()
    bench.actors["plain"].send()
    bench.run(clock)

    assert (4, 2) == (len(calls), len(plain))
    assert ["backoff"] == [each.rule for each in events]


def test_a_wrong_delay_of_a_signal_ends_the_call(bench, clock, events):
    """A decision that fails is an end with a catch, and no message that is acknowledged out of sight."""
    scripted(bench, redrive.Snooze("soon"), retry="1 1s")
    bench.actors["charge"].send()
    bench.run(clock)

    assert ["permanent"] == [each.rule for each in events]
    assert [("charge", "nack")] == bench.settled


def test_cancel_ends_without_a_catch(bench, clock, events):
    """A cancelled call is acknowledged."""
    requests = caught(bench)
    scripted(bench, redrive.Cancel("not needed"), retry="1 1s catch refund")
    bench.actors["charge"].send()
    bench.run(clock)

    assert ([], [], [("charge", "ack")]) == (requests, events, bench.settled)


def test_a_time_limit_is_a_failure_in_flight(bench, clock, events):
    """`TimeLimitExceeded` is no `Exception`, and the policy decides about it as about a timeout."""
    scripted(bench, TimeLimitExceeded(), retry="1 1s")
    scripted(bench, TimeLimitExceeded(), name="once", retry=Policy.parse("1 1s").with_(idempotent=False))
    scripted(bench, TimeLimitExceeded(), name="other", retry=Policy(on=OSError, attempts=2))
    for each in list(bench.actors.values()):
        each.send()
    bench.run(clock)

    assert {("TIMEOUT", Stage.IN_FLIGHT)} == {(each.failure.reason, each.failure.stage) for each in events}
    assert {"charge": ["backoff", "attempts"], "once": ["not_idempotent"], "other": ["not_matched"]} == {
        name: [each.rule for each in events if each.task == name] for name in bench.actors
    }


def test_a_time_limit_of_an_asynchronous_actor_may_come_as_a_cause(bench, clock, events):
    """Dramatiq raises a `RuntimeError` if a coroutine does not end in time."""
    late = RuntimeError("Timed out while waiting for coroutine.")
    late.__cause__ = TimeLimitExceeded()
    scripted(bench, late, None, retry="1 1s")
    bench.actors["charge"].send()
    bench.run(clock)

    assert ["TIMEOUT"] == [each.failure.reason for each in events]


def test_a_shutdown_is_not_charged(bench, clock, events):
    """An actor that a shutdown has interrupted runs again at once, with or without a policy."""
    calls, plain = scripted(bench, Shutdown(), None, retry="1 1s"), scripted(bench, Shutdown(), None, name="plain")
    bench.actors["charge"].send()
    bench.actors["plain"].send()
    bench.run(clock)

    assert (2, 2, []) == (len(calls), len(plain), events)
    assert {None} == {delay for _, delay in bench.sent}


@pytest.mark.parametrize("lost", ["shutdown", "redelivered"])
def test_an_actor_that_must_not_run_twice_does_not(bench, clock, events, lost):
    """With `idempotent=False` an interrupted attempt, and one whose worker was lost, end the call."""
    calls, requests = scripted(bench, Shutdown(), retry=Policy(idempotent=False, catch="refund")), caught(bench)
    bench.actors["charge"].send()
    bench.step(clock, redelivered=lost == "redelivered")
    bench.run(clock)

    assert (1 if lost == "shutdown" else 0, 1) == (len(calls), len(requests))
    assert ["not_idempotent"] == [each.rule for each in events]


def test_a_long_delay_takes_hops(clock, events):
    """No message waits longer than a hop; those in between do not run the actor, and are not charged."""
    bench = Bench(hop="10s")
    calls = scripted(bench, OSError("x"), None, retry="1 25s")
    bench.actors["charge"].send()
    bench.step()
    started = clock.now()
    while len(calls) < 2:
        clock.advance(timedelta(milliseconds=bench.sent[-1][1]))
        bench.step()

    assert [None, 10_000, 10_000, 5_000] == [delay for _, delay in bench.sent]
    assert timedelta(seconds=25) == clock.now() - started
    assert ["backoff"] == [each.rule for each in events]


def test_a_hop_stores_no_result(clock):
    """The middleware Results stores the result of the attempt, and None for no message in between."""
    backend = StubBackend()
    bench = Bench(Results(backend=backend), hop="10s")
    scripted(bench, OSError("x"), "paid", retry="1 25s", store_results=True)
    message = bench.actors["charge"].send()
    bench.step()
    bench.step()

    with pytest.raises(dramatiq.results.ResultMissing):
        message.get_result(backend=backend)
    bench.run(clock)
    assert "paid" == message.get_result(backend=backend)


def test_the_last_failure_is_the_result(clock):
    """After the end the middleware Results has the exception of the actor."""
    backend = StubBackend()
    bench = Bench(Results(backend=backend))
    scripted(bench, OSError("x"), retry="1 1s", store_results=True)
    message = bench.actors["charge"].send()
    bench.run(clock)

    with pytest.raises(dramatiq.results.ResultFailure, match="x"):
        message.get_result(backend=backend)


def test_a_message_of_an_unknown_version_ends_the_call(bench, clock, events):
    """A message that a newer version has written is not guessed at; the catch actor gets it."""
    calls, requests = scripted(bench, None, retry="1 1s catch refund"), caught(bench)
    bench.actors["charge"].send_with_options(args=(7,), redrive={"v": 2})
    bench.run(clock)

    assert ([], 7) == (calls, requests[0].request)
    assert [("permanent", "BAD_PAYLOAD")] == [(each.rule, each.failure.reason) for each in events]
    assert "reads only the form 1" in requests[0].error


def test_a_policy_that_a_deployment_has_changed_holds_for_messages_on_their_way(clock):
    """The counters stay, and the new policy decides."""
    old, new = Bench(), Bench()
    scripted(old, OSError("x"), retry="5 1s")
    calls = scripted(new, OSError("x"), retry="2 1s")
    old.actors["charge"].send()
    old.step(clock)
    old.step(clock)
    new.enqueue(old.take())
    new.run(clock)

    assert 1 == len(calls)


def test_a_message_that_was_sent_before_the_adoption_begins_anew(bench, clock):
    """What Dramatiq's own middleware has counted does not count here."""
    calls = scripted(bench, OSError("x"), retry="2 1s")
    options = {"retries": 7, "traceback": "...", "requeue_timestamp": 1, "max_retries": 9}
    bench.actors["charge"].send_with_options(**options)
    bench.run(clock)

    assert 3 == len(calls)


def test_a_retry_beyond_the_age_limit_is_an_end(clock, events):
    """Dramatiq drops a message that is too old; the call ends before, with its catch actor."""
    # The middleware of Dramatiq reads the time of the system.
    clock.advance(SystemClock().now() - clock.now())
    bench = Bench(AgeLimit())
    requests = caught(bench)
    scripted(bench, OSError("x"), redrive.Snooze("9h"), retry="5 1s catch refund", max_age=3_600_000)
    scripted(bench, OSError("x"), name="later", retry="1 2h", max_age=3_600_000)

    def send(name):
        at = int(clock.now().timestamp() * 1000)
        bench.enqueue(bench.actors[name].message().copy(message_timestamp=at))
        bench.step()

    send("charge")
    clock.advance(timedelta(hours=2))
    bench.step()
    bench.step()
    send("charge")
    bench.step()
    send("later")

    assert ["backoff", "deadline", "deadline", "deadline"] == [each.rule for each in events]
    assert (2, None) == (len(requests), bench.take())


def test_a_deadline_of_the_policy_is_looked_at_before_the_attempt(bench, clock, events):
    """A message that comes too late is not executed."""
    calls = scripted(bench, OSError("x"), retry=Policy(attempts=9, deadline="10s", backoff=Backoff.constant("4s")))
    bench.actors["charge"].send()
    bench.step()
    clock.advance(timedelta(seconds=11))
    bench.run()

    assert (1, ["backoff", "deadline"]) == (len(calls), [each.rule for each in events])


def test_a_catch_that_fails_is_repeated(bench, clock, events):
    """A catch actor is repeated with the same request until it succeeds."""
    scripted(bench, redrive.GiveUp("no"), retry=Policy(attempts=2, backoff=Backoff.constant("30s"), catch="refund"))
    requests = scripted(bench, OSError("down"), OSError("down"), None, name="refund")
    bench.actors["charge"].send(1)
    bench.run(clock)

    assert 3 == len(requests)
    assert 1 == len({str(each) for each in requests})
    assert [("refund", None), ("refund", 30_000), ("refund", 30_000)] == bench.sent[1:]
    assert ["permanent", "catch", "catch"] == [each.rule for each in events]


def test_the_argument_of_a_catch_is_a_mapping_if_there_are_several(bench, clock):
    """As for jobs: one argument alone, or all by name."""
    requests = caught(bench)

    @bench.actor(retry="0 1s catch refund")
    def several(first, *, second):
        raise OSError("x")

    several.send(1, second=2)
    several.send(1, 2, 3)
    bench.run(clock)

    assert [{"first": 1, "second": 2}, {"args": [1, 2, 3]}] == [each.request for each in requests]


def test_wrong_arguments_are_a_programming_error(bench, clock, events):
    """A call that the actor does not take is not repeated; a TypeError in it is."""

    @bench.actor(retry="1 1s")
    def two(first, second):
        raise TypeError("of the data")

    two.send(1)
    two.send(1, 2)
    bench.run(clock)

    assert ["not_matched", "backoff", "attempts"] == [each.rule for each in events]
    assert "cannot be called with these arguments" in events[0].why


def test_nothing_is_acknowledged_before_what_follows_is_sent(bench, clock, monkeypatch, events):
    """While the broker is away, Dramatiq asks again; no message is lost, and none is sent twice."""
    monkeypatch.setattr("dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0)
    calls = scripted(bench, OSError("x"), None, retry="1 1s")
    bench.actors["charge"].send()
    bench.broken = [ConnectionClosed("away"), OSError("away")]
    bench.run(clock)

    assert (2, [("charge", "ack")] * 2) == (len(calls), bench.settled)
    assert 1 == len(events)


def test_a_breaker_that_is_open_puts_the_call_off(bench, clock, events):
    """An open breaker is no failure: nothing is charged, and the actor is not called."""
    with isolated():
        breaker("bank", BreakerSettings(volume_threshold=1, error_threshold=1, sleep_window="20s"))
        calls = scripted(
            bench, OSError("x"), None, retry=Policy(attempts=3, backoff=Backoff.constant("1s"), breaker="bank")
        )
        bench.actors["charge"].send()
        bench.run(clock)

    assert 2 == len(calls)
    assert ["backoff"] == [each.rule for each in events]
    assert timedelta(seconds=20) <= clock.now() - START


def test_another_middleware_that_skips_a_message_ends_its_attempt(clock):
    """`AgeLimit` has the same effect as without a policy, where the actor has none."""
    bench = Bench(AgeLimit(max_age=1))
    calls = scripted(bench, None)
    bench.enqueue(bench.actors["charge"].message().copy(message_timestamp=0))
    bench.run(clock)

    assert ([], [("charge", "nack")]) == (calls, bench.settled)


def test_hooks_of_the_policy_are_called(bench, clock, caplog):
    """`on_retry` and `on_give_up` get the details; an error in one is logged and changes nothing."""
    seen = []

    def note(details):
        seen.append((details.function, details.args, details.attempt, details.rule))
        raise OSError("of the hook")

    policy = Policy(attempts=2, backoff=Backoff.constant("1s"), on_retry=note, on_give_up=note)
    scripted(bench, OSError("x"), retry=policy)
    bench.actors["charge"].send(7)
    with caplog.at_level(logging.ERROR, "redrive.dramatiq"):
        bench.run(clock)

    assert [("charge", (7,), 1, "backoff"), ("charge", (7,), 2, "attempts")] == seen
    assert 2 == sum("a hook of its policy failed" in each.getMessage() for each in caplog.records)


def test_a_retried_call_in_an_actor_leaves_its_retries_to_the_actor(bench, clock):
    """Two layers that would retry one failure do not multiply their attempts."""
    calls = []

    @redrive.retry("4 1ms", on=ConnectionError)
    def call():
        calls.append(1)
        raise ConnectionError("down")

    @bench.actor(retry="1 1s")
    def charge():
        call()

    charge.send()
    bench.run(clock)

    assert 2 == len(calls)


def test_a_pipeline_goes_on_after_a_retry(clock):
    """The next actor gets the result of the attempt that succeeded, once."""
    bench = Bench(Pipelines())
    scripted(bench, OSError("x"), "paid", name="first", retry="1 1s")
    second = scripted(bench, None, name="second", retry="1 1s")
    dramatiq.pipeline([bench.actors["first"].message(1), bench.actors["second"].message()], broker=bench).run()
    bench.run(clock)

    assert ["paid"] == second


def test_a_group_ends_once_after_retries_of_its_parts(clock):
    """The callback of a group runs after all parts have succeeded."""
    bench = Bench(dramatiq.middleware.GroupCallbacks(RateLimits()))
    for name in ("a", "b", "c"):
        scripted(bench, OSError("x"), None, name=name, retry="1 1s")
    done = scripted(bench, None, name="done")
    group = dramatiq.group([bench.actors[name].message() for name in ("a", "b", "c")], broker=bench)
    group.add_completion_callback(bench.actors["done"].message())
    group.run()
    bench.run(clock)

    assert 1 == len(done)


def test_callbacks_of_a_catch_actor_get_its_message(clock):
    """The message of a catch actor can be encoded while it runs."""
    bench = Bench(Callbacks())
    after = []
    bench.actor(lambda message, result: after.append(message), actor_name="after")
    scripted(bench, None, name="refund", on_success="after")
    scripted(bench, redrive.GiveUp("no"), retry="1 1s catch refund")
    bench.actors["charge"].send(7)
    bench.run(clock)

    ((request,),) = [each["args"] for each in after]
    assert ("charge", 7) == (request["task"], request["request"])


def test_an_actor_that_is_called_directly_is_a_function(bench):
    """Without a message there is no policy."""
    calls = scripted(bench, OSError("x"), retry="5 1s")
    with pytest.raises(OSError, match="x"):
        bench.actors["charge"](1)

    assert 1 == len(calls)


def test_an_exit_of_an_actor_is_no_candidate(bench, clock, events):
    """`SystemExit` ends the call, as that of a handler does."""
    scripted(bench, SystemExit(1), retry="5 1s")
    bench.actors["charge"].send()
    bench.run(clock)

    assert ["not_matched"] == [each.rule for each in events]


def test_an_attempt_timeout_is_the_time_limit(bench):
    """`attempt_timeout` sets the option of Dramatiq, unless the actor has it."""
    broker = Bench(TimeLimit())
    scripted(broker, None, retry=Policy(attempt_timeout="3s"))
    scripted(broker, None, name="own", retry=Policy(attempt_timeout="3s"), time_limit=5)

    assert (3000, 5) == tuple(broker.actors[name].options["time_limit"] for name in ("charge", "own"))
