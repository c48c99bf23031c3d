"""What the orchestrator tells reaches the sinks of `redrive.observe` too."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest

from redrive import observe
from redrive.errors import RequestCancelled
from redrive.retrying.orchestrator import FailFast, Orchestrator, Request, RequestNotRetried, RequestRetryScheduled
from redrive.retrying.orchestrator import RetryReason as Why
from tests.retrying.orchestrator.helpers import Asked


def test_sinks_hear_what_is_logged(run, clock, caplog):
    """A sink gets the same event as the log, which knows its operation, channel and level."""
    seen = []
    with observe.only(seen.append):
        run(Orchestrator(strategy=Asked("200ms")).maybe_retry, Request("upsert"), Why.KV_LOCKED)
        with pytest.raises(RequestCancelled):
            run(Orchestrator(strategy=FailFast()).maybe_retry, Request("upsert"), Why.KV_LOCKED)

    assert [RequestRetryScheduled, RequestNotRetried] == [type(event) for event in seen]
    assert [record.event for record in caplog.records] == seen
    assert {("upsert", "redrive.orchestrator")} == {(event.name, event.channel) for event in seen}
    assert [logging.DEBUG, logging.INFO] == [event.level for event in seen]


def test_sinks_hear_what_is_not_logged(run, clock, caplog):
    """A quiet logger does not keep events from sinks."""
    caplog.set_level(logging.WARNING, logger="redrive.orchestrator")
    seen = []
    with observe.only(seen.append):
        run(Orchestrator().maybe_retry, Request(), Why.KV_LOCKED)

    assert ([RequestRetryScheduled], []) == ([type(event) for event in seen], caplog.records)


def test_the_log_sink_does_not_log_twice(run, clock, caplog):
    """Whoever adds `log` gets one line for each event of the orchestrator, as before."""
    with observe.only(observe.log):
        run(Orchestrator().maybe_retry, Request(), Why.KV_LOCKED)

    assert 1 == len(caplog.records)


def test_a_manager_is_around_the_wait_of_a_request(run, clock, monkeypatch):
    """The wait of a request is between a sink's enter and exit."""
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
    """A refusal runs a sink's manager completely."""
    order = []

    @contextmanager
    def sink(event):
        order.append("enter")
        yield
        order.append("exit")

    with observe.only(sink), pytest.raises(RequestCancelled):
        run(Orchestrator(strategy=FailFast()).maybe_retry, Request(), Why.KV_LOCKED)

    assert ["enter", "exit"] == order
