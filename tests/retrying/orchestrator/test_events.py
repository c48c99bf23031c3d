"""Events of the orchestrator also reach the sinks of `redrive.observe`."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from redrive import observe
from redrive.errors import AmbiguousTimeout, RequestCancelled
from redrive.orchestrator import (
    FailFast,
    Orchestrator,
    Request,
    RequestNotRetried,
    RequestRetryScheduled,
    ResponseOrphaned,
)
from redrive.orchestrator import RetryReason as Why
from tests.retrying.orchestrator.helpers import FixedStrategy


def test_sinks_get_logged_events(run, clock, caplog):
    """Sinks get the same event as the log, with its operation, channel and level."""
    seen = []
    with observe.only(seen.append):
        run(Orchestrator(strategy=FixedStrategy("200ms")).maybe_retry, Request("upsert"), Why.KV_LOCKED)
        with pytest.raises(RequestCancelled):
            run(Orchestrator(strategy=FailFast()).maybe_retry, Request("upsert"), Why.KV_LOCKED)

    assert [RequestRetryScheduled, RequestNotRetried] == [type(event) for event in seen]
    assert [record.event for record in caplog.records] == seen
    assert {("upsert", "redrive.orchestrator")} == {(event.name, event.channel) for event in seen}
    assert [logging.DEBUG, logging.INFO] == [event.level for event in seen]


def test_sinks_get_events_below_the_log_level(run, clock, caplog):
    """Sinks get events that the logger's level excludes."""
    caplog.set_level(logging.WARNING, logger="redrive.orchestrator")
    seen = []
    with observe.only(seen.append):
        run(Orchestrator().maybe_retry, Request(), Why.KV_LOCKED)

    assert ([RequestRetryScheduled], []) == ([type(event) for event in seen], caplog.records)


def test_the_log_sink_does_not_log_twice(run, clock, caplog):
    """With the sink `log` added, each event of the orchestrator is logged once."""
    with observe.only(observe.log):
        run(Orchestrator().maybe_retry, Request(), Why.KV_LOCKED)

    assert 1 == len(caplog.records)


def test_a_manager_is_around_the_wait_of_a_request(run, clock, monkeypatch):
    """Context managers of sinks surround the wait of a request."""
    order, asleep = [], clock.asleep

    async def slow(seconds):
        order.append("waits")
        await asleep(seconds)

    @contextmanager
    def sink(event):
        order.append("enter")
        yield
        order.append("exit")

    monkeypatch.setattr(clock, "asleep", slow)
    with observe.only(sink):
        run(Orchestrator().maybe_retry, Request(), Why.KV_LOCKED)

    assert ["enter", "waits", "exit"] == order


def test_a_manager_has_no_wait_around_a_refusal(run, clock):
    """Refusals run the context manager of a sink without a wait."""
    order = []

    @contextmanager
    def sink(event):
        order.append("enter")
        yield
        order.append("exit")

    with observe.only(sink), pytest.raises(RequestCancelled):
        run(Orchestrator(strategy=FailFast()).maybe_retry, Request(), Why.KV_LOCKED)

    assert ["enter", "exit"] == order


def full_request():
    """Return a request with all its fields set."""
    request = Request(
        "upsert",
        service="kv",
        id="7",
        timeout="2500ms",
        context={"user": {"ids": (1, 2)}, 3: timedelta(seconds=1), "rate": float("inf")},
    )
    request.attempt.dispatch("node1:11210", local_address="10.0.0.9:50000", channel_id="c1")
    return request


COMMON = {
    "id": "7",
    "operation": "upsert",
    "service": "kv",
    "endpoint": "node1:11210",
    "local_address": "10.0.0.9:50000",
    "channel_id": "c1",
    "timeout_ms": 2500.0,
    "idempotent": False,
    "context": {"user": {"ids": [1, 2]}, "3": "datetime.timedelta(seconds=1)", "rate": "inf"},
}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            FixedStrategy("200ms"),
            {"event": "RequestRetryScheduled", "attempts": 1, "delay_ms": 200.0, "reasons": ["KV_LOCKED"]},
        ),
        (FailFast(), {"event": "RequestNotRetried", "attempts": 0, "delay_ms": None}),
    ],
)
def test_a_decision_is_exported_as_plain_data(run, clock, strategy, expected):
    """Events of decisions have all fields of their request, and JSON contains them all."""
    seen = []
    with observe.only(seen.append), suppress(OSError):
        run(Orchestrator(strategy=strategy).maybe_retry, full_request(), Why.KV_LOCKED, OSError("busy"))

    cause = {"type": "OSError", "message": "busy"}
    assert COMMON | expected | {"reason": "KV_LOCKED", "cause": cause} == json.loads(json.dumps(seen[0].to_dict()))


def test_a_record_is_exported_as_plain_data(run, clock):
    """Records of requests contain timeout, flags, service and connection, and those of each attempt."""
    request = full_request()
    run(Orchestrator(strategy=FixedStrategy("200ms")).maybe_retry, request, Why.KV_LOCKED)

    first = {
        "number": 1,
        "reason": "KV_LOCKED",
        "delay_ms": 200.0,
        "dispatched": True,
        "definite": True,
        "endpoint": "node1:11210",
        "local_address": "10.0.0.9:50000",
        "channel_id": "c1",
        "dispatched_after_ms": 0.0,
        "ended_after_ms": 0.0,
    }
    second = dict.fromkeys(first) | {"number": 2, "dispatched": False, "definite": False}
    assert COMMON | {
        "elapsed_ms": 200.0,
        "retry_attempts": 1,
        "retry_reasons": ["KV_LOCKED"],
        "is_ambiguous": False,
        "completed": False,
        "cancelled": False,
        "cancellation": None,
        "history": [first, second],
    } == json.loads(json.dumps(request.record.to_dict()))


def test_context_that_is_nested_without_end_is_exported(clock):
    """Recursive contexts are exported as their repr."""
    context = {}
    context["self"] = context
    request = Request(context=context)

    assert json.dumps(request.record.to_dict())


@pytest.mark.parametrize("answer", ["attempt", "request"])
def test_an_answer_after_the_timeout_is_an_orphan(run, clock, caplog, answer):
    """Responses to a request that has timed out are reported once, with their origin, and change nothing."""
    request = full_request()
    request.attempt.dispatch("node1:11210", local_address="10.0.0.9:50000", channel_id="c1")
    attempt = request.attempt
    assert True is request.fail(AmbiguousTimeout())
    clock.advance(0.5)
    record, seen = request.record, []
    with observe.only(seen.append):
        for _ in range(2):
            attempt.answer() if answer == "attempt" else request.succeed("late")

    (event,) = seen
    assert COMMON | {
        "event": "ResponseOrphaned",
        "attempts": 0,
        "number": 1,
        "elapsed_ms": 0.0,
        "late_by_ms": 500.0,
    } == json.loads(json.dumps(event.to_dict()))
    assert [("INFO", event)] == [(record.levelname, record.event) for record in caplog.records]
    assert "upsert was answered 500ms after its end: attempt=1, retries=0, id=7, service=kv" == str(event)[:79]
    assert (record, ResponseOrphaned) == (request.record, type(event))
    with pytest.raises(AmbiguousTimeout):
        request.result()


def test_the_answer_of_a_cancelled_request_is_an_orphan(clock):
    """Answers to a cancelled request are orphans."""
    request, seen = full_request(), []
    request.cancel()
    with observe.only(seen.append):
        request.succeed("late")

    assert [ResponseOrphaned] == [type(event) for event in seen]


@pytest.mark.parametrize(
    "end", [lambda request: request.succeed(), lambda request: request.fail(OSError())], ids=["result", "error"]
)
def test_a_second_answer_is_no_orphan(clock, end):
    """Second answers to an answered request change nothing."""
    request, seen = full_request(), []
    end(request)
    record = request.record
    with observe.only(seen.append):
        request.attempt.answer(definite=False)
        request.succeed()

    assert ([], record) == (seen, request.record)


def test_the_timeout_is_the_whole_time(run, clock):
    """Requests without a timeout have that of the orchestrator; without both they have none."""
    requests = [Request(), Request(timeout="1s"), Request()]
    for request, timeout in zip(requests, ["75s", "75s", None], strict=True):
        Orchestrator(timeout=timeout).begin(request)

    assert [75.0, 1.0, None] == [request.timeout and request.timeout.total_seconds() for request in requests]
