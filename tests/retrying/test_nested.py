"""Nested policies: which of two retried calls retries a failure."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

import redrive
from redrive.contrib.httpx import RetryTransport
from redrive.orchestrator import Orchestrator, Request, RetryReason
from redrive.policy import Backoff, Failure, Policy, Rule
from redrive.retrying import disabled
from tests.retrying.helpers import Busy, Other, Script
from tests.retrying.test_context import FORMS, in_block

AT_ONCE = Policy(on=Busy, attempts=4, backoff=Backoff.constant(0))
ELSEWHERE = AT_ONCE.with_(on=Other)
EITHER = AT_ONCE.with_(on=(Busy, Other))


@pytest.mark.parametrize("inner", FORMS.values(), ids=[f"inner {name}" for name in FORMS])
@pytest.mark.parametrize("outer", FORMS.values(), ids=[f"outer {name}" for name in FORMS])
def test_a_call_above_that_names_other_failures_is_no_layer(outer, inner):
    """Under a policy that names another failure, the inner call retries: three calls and the answer."""
    script = Script(Busy(), Busy(), "answer")

    assert "answer" == outer(ELSEWHERE)(inner(AT_ONCE)(script))()
    assert 3 == script.calls


def test_a_call_that_leaves_its_retries_is_logged(caplog):
    """At the level of details: else an inner policy seems to be ignored."""
    inner = redrive.retry(AT_ONCE)(Script(Busy(), "answer"))
    with caplog.at_level(logging.DEBUG, "redrive.calls"):
        assert "answer" == redrive.retry(AT_ONCE)(lambda: inner())()  # noqa: PLW0108 - a layer of its own

    (left,) = [each.getMessage() for each in caplog.records if each.levelno == logging.DEBUG]
    assert left.endswith('above; nested="both" retries here, too')
    assert "has failed, and leaves the retries to " in left


def test_each_failure_is_retried_by_the_policy_that_names_it():
    """Two policies about different failures each retry their own, in one call."""
    script = Script(Busy(), Other(), Busy(), "answer")

    assert "answer" == redrive.retry(ELSEWHERE)(redrive.retry(AT_ONCE)(script))()
    assert 4 == script.calls


def test_a_later_failure_is_left_to_the_call_above():
    """Failures that the enclosing policy names are left to it, also after the inner call has retried another one."""
    script = Script(Busy(), Other())
    with pytest.raises(Other) as caught:
        redrive.retry(ELSEWHERE)(redrive.retry(EITHER)(script))()

    assert 5 == script.calls
    assert ("attempts", 4) == (caught.value.__retry__.rule, caught.value.__retry__.attempts)


@pytest.mark.parametrize(("order", "calls"), [("outer", 4), ("middle", 4), ("inner", 4)])
def test_the_layer_that_names_the_failure_retries(order, calls):
    """In a chain of three policies of which one names the failure, that one retries, wherever it stands."""
    policies = {name: AT_ONCE if name == order else ELSEWHERE for name in ("outer", "middle", "inner")}
    script = call = Script(Busy())
    for name in ("inner", "middle", "outer"):
        call = redrive.retry(policies[name])(call)
    with pytest.raises(Busy):
        call()

    assert calls == script.calls


def test_a_failure_goes_past_a_layer_that_does_not_name_it():
    """Failures skip a middle layer that does not name them."""
    script = Script(Busy())
    between = redrive.retry(ELSEWHERE)(redrive.retry(AT_ONCE)(script))
    with pytest.raises(Busy):
        redrive.retry(AT_ONCE.with_(attempts=3))(between)()

    assert 3 == script.calls


WOULD_NOT = {
    "a rule with one attempt": AT_ONCE.with_(rules=[Rule(Busy, attempts=1)]),
    "a classifier that says no": AT_ONCE.with_(on=lambda _: False),
    "a classifier that fails": AT_ONCE.with_(on=lambda _: 1 / 0),
    "a result only": Policy(on_result=bool, attempts=4, backoff=Backoff.constant(0)),
    "an unknown outcome": AT_ONCE.with_(on=lambda e: Failure.of(e)._replace(stage=redrive.policy.Stage.IN_FLIGHT)),
    "a combination": AT_ONCE & ELSEWHERE,
    "a deadline that leaves no wait": AT_ONCE.with_(deadline=10, backoff=Backoff.constant(20), jitter="none"),
    "a wait until the deadline": AT_ONCE.with_(deadline=10, backoff=Backoff.constant(20), over_deadline="truncate"),
    "a deferral": AT_ONCE.with_(deadline=10, backoff=Backoff.constant(20), over_deadline="defer", jitter="none"),
}


@pytest.mark.parametrize("outer", WOULD_NOT.values(), ids=WOULD_NOT)
def test_a_policy_that_would_not_retry_is_no_layer(clock, outer):
    """If the enclosing policy would not retry the failure, the inner call does."""
    script = Script(Busy(), Busy(), None)

    assert redrive.retry(outer)(redrive.retry(AT_ONCE)(script))() is None
    assert 3 == script.calls


def test_an_expired_deadline_makes_no_layer(clock):
    """Enclosing calls with a deadline that passes in the first attempt leave the retrying to the inner call."""
    script = Script(Busy(), Busy(), "answer", clock=clock, takes=6)
    outer = AT_ONCE.with_(deadline=5)

    assert "answer" == outer.call(redrive.retry(AT_ONCE)(script))
    assert 3 == script.calls


def test_used_attempts_are_not_started_again():
    """In the last attempt of a call that has retried, the inner call does not begin to retry."""
    script = Script(Busy())
    with pytest.raises(Busy):
        redrive.retry(AT_ONCE)(redrive.retry(AT_ONCE.with_(attempts=9))(script))()

    assert 4 == script.calls


def test_a_hint_that_is_too_long_makes_no_layer(clock):
    """Enclosing calls that refuse a long hint leave the failure to an inner call that waits."""

    class Later(Busy):
        retry_after = 30

    script = Script(Later(), "answer")
    outer = AT_ONCE.with_(max_hint=10)

    assert "answer" == redrive.retry(outer)(redrive.retry(AT_ONCE)(script))()


def test_a_block_is_a_layer_for_its_own_failures_only():
    """Blocks that name another failure leave the retrying to the call inside."""
    script = Script(Busy(), Busy(), None)
    in_block(ELSEWHERE, redrive.retry(AT_ONCE)(script))

    assert 3 == script.calls


def test_a_generator_is_a_layer_for_its_own_failures_only():
    """Below a generator that has yielded nothing an inner call retries what the generator's policy does not name."""
    for outer, calls in ((AT_ONCE, 4), (ELSEWHERE, 16)):
        script = Script(Busy())
        inner = redrive.retry(AT_ONCE.with_(attempts=16))(script)

        @redrive.retry(outer)
        def items(inner=inner):
            yield inner()

        with pytest.raises(Busy):
            list(items())
        assert calls == script.calls


def test_a_result_is_left_to_a_policy_that_rejects_it():
    """Rejected results are left to an enclosing call that rejects them too, and retried below one that does not."""
    is_none = AT_ONCE.with_(on_result=lambda result: result is None)
    is_empty = AT_ONCE.with_(on_result=lambda result: len(result) == 0)
    for outer, calls in ((is_none, 4), (is_empty, 4), (AT_ONCE, 4)):
        script = Script(None)
        inner = redrive.retry(is_none)(script)
        redrive.retry(outer)(lambda inner=inner: inner() or "something")()
        assert (1 if outer is is_none else calls) == script.calls


def test_both_calls_retry_with_nested_both():
    """With `nested="both"` the inner call retries by itself, whatever the policy above names."""
    for outer in (AT_ONCE, ELSEWHERE):
        script = Script(Busy(), Busy(), "answer")
        inner = redrive.retry(AT_ONCE.with_(nested="both"))(script)
        assert "answer" == redrive.retry(outer)(inner)()


def test_switched_off_calls_are_no_layer():
    """Calls that began where retries were switched off do not retry, and neither does a call below."""
    script = Script(Busy())
    with disabled(), pytest.raises(Busy):
        redrive.retry(AT_ONCE)(redrive.retry(AT_ONCE)(script))()

    assert 1 == script.calls


@pytest.mark.parametrize("deadline", [None, "1h"])
def test_a_task_below_retries_what_the_call_above_does_not(deadline):
    """In a task of its own an inner call retries what the call above does not name, with a deadline or without."""
    script = Script(Busy(), Busy(), "answer")
    inner = redrive.retry(AT_ONCE)(script.as_async())
    outer = ELSEWHERE if deadline is None else ELSEWHERE.with_(deadline=deadline)

    @redrive.retry(outer)
    async def call():
        return await asyncio.create_task(inner())

    assert "answer" == asyncio.run(call())


def test_a_thread_below_retries_what_the_call_above_does_not():
    """In a worker thread an inner call retries what the call above does not name."""
    script = Script(Busy(), Busy(), "answer")
    inner = redrive.retry(AT_ONCE)(script)

    @redrive.retry(ELSEWHERE.with_(deadline="1h"))
    async def call():
        return await asyncio.to_thread(inner)

    assert "answer" == asyncio.run(call())


def test_a_hedged_call_asks_the_calls_above_it():
    """Each copy of a hedged call retries what the call above does not name."""
    script = Script(Busy(), Busy(), "answer")
    hedged = AT_ONCE.with_(idempotent=True, hedge=redrive.retrying.Hedge("1h"))

    @redrive.retry(ELSEWHERE)
    async def call():
        return await redrive.retry(hedged)(script.as_async())()

    assert "answer" == asyncio.run(call())


def transport(statuses):
    """Return an httpx transport without a network, which answers with one status after the other."""
    left = list(statuses)
    return httpx.MockTransport(lambda _: httpx.Response(left.pop(0)))


@pytest.mark.parametrize("on", [ValueError, httpx.TransportError])
def test_a_transport_retries_what_the_call_above_does_not_name(clock, on):
    """Under a policy that does not name the status error the transport retries its 503s."""

    @redrive.retry(Policy(on=on, attempts=4))
    def fetch():
        with httpx.Client(transport=RetryTransport("3 10ms", transport([503, 503, 200]))) as client:
            return client.get("http://example.test/").status_code

    assert 200 == fetch()


def test_an_orchestrator_is_a_layer_for_what_it_classifies():
    """Below an orchestrator an inner policy retries an error that the orchestrator would raise at once."""
    classified = {Other: RetryReason.SERVICE_NOT_AVAILABLE}
    orchestrator = Orchestrator(classify=lambda _, error: classified.get(type(error)))
    script = Script(Busy(), Busy(), "answer")
    inner = redrive.retry(AT_ONCE)(script.as_async())

    async def send(_request, _attempt):
        return await inner()

    assert "answer" == asyncio.run(orchestrator.run(Request("get", idempotent=True), send))
    assert 3 == script.calls
