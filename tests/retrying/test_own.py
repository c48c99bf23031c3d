"""The budget of a function, a policy object and a transport that name none."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import threading

import httpx
import pytest

import redrive
from redrive import Backoff, GaveUp, Policy
from redrive.contrib.httpx import AsyncRetryTransport, RetryTransport
from redrive.engine.frozen import freeze
from redrive.errors import PolicyValueError
from redrive.policy.budget import OWN
from redrive.retrying import Hedge, TokenBudget, budget, isolated
from redrive.retrying.own import OwnBudget
from redrive.retrying.plan import Plan
from redrive.retrying.shared import SharedBreaker
from redrive.testing import VirtualClock, using
from tests.retrying.helpers import Busy, Script, checkpoint

THREE = Policy(on=Busy, attempts=3, backoff=Backoff.constant(0))
BESIDE = 100
"""The retries that the budget grants to calls side by side, from the beginning."""


def in_block(policy, function):
    """Run a function in a block."""
    for attempt in policy:
        with attempt:
            return function()
    return None


FORMS = {
    "decorated": lambda policy, function: redrive.retry(policy)(function),
    "with a deadline": lambda policy, function: redrive.retry(policy.with_(deadline="1d"))(function),
    "call": lambda policy, function: lambda: policy.call(function),
    "block": lambda policy, function: lambda: in_block(policy, function),
}


@pytest.mark.parametrize("attempts", [3, 10])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_lone_caller_has_no_budget(form, attempts):
    """A caller that makes one call after another gets all attempts of a hundred and more failing calls in a row."""
    script = Script(Busy())
    call = form(THREE.with_(attempts=attempts), script)
    for _ in range(120):
        with pytest.raises(Busy) as caught:
            call()
        assert "attempts" == caught.value.__retry__.rule

    assert 120 * attempts == script.calls


@pytest.mark.parametrize("passes", ["0s", "1m"])
def test_time_that_stands_still_changes_nothing(passes):
    """With a clock of tests, which stands still or passes a minute between two calls, all attempts are made."""
    clock, script = VirtualClock(), Script(Busy())
    call = redrive.retry(THREE)(script)
    with using(clock=clock):
        for _ in range(120):
            clock.advance(passes)
            with pytest.raises(Busy):
                call()

    assert 360 == script.calls


def test_tests_in_virtual_time_have_no_budget():
    """Where a clock of tests is in force, or tests run without waits, calls side by side make all their attempts."""
    for scope in (using(clock=VirtualClock()), redrive.testing.retries(3)):
        with scope:
            assert 1000 == asyncio.run(Crowd().together(500))[0]


def test_a_lone_generator_has_no_budget():
    """A generator that is retried, one stream after another, gets all its attempts."""
    script = Script(Busy())

    @redrive.retry(THREE)
    def items():
        yield script()

    for _ in range(120):
        with pytest.raises(Busy):
            list(items())
    assert 360 == script.calls


class Crowd:
    """Coroutine functions of one owner, which fail at the same time while ``is_down`` is true."""

    def __init__(self, policy=THREE, make=redrive.retry):
        self.is_down, self.calls = True, 0
        self.once = make(policy)(self._once)

    async def _once(self):
        self.calls += 1
        await checkpoint()
        if self.is_down:
            raise Busy

    async def together(self, size):
        """Make calls side by side; return the number of retries, and the errors."""
        self.calls = 0
        found = await asyncio.gather(*[self.once() for _ in range(size)], return_exceptions=True)
        return self.calls - size, [each for each in found if each is not None]


def through_policy(policy):
    """Return a decorator that makes calls by the policy itself."""
    return lambda function: lambda: policy.acall(function)


@pytest.mark.parametrize("make", [redrive.retry, through_policy], ids=["decorated", "acall"])
def test_calls_side_by_side_are_limited(make):
    """Of five hundred calls that fail at the same time 100 retries are made, and those of one call; then one alone."""

    async def main():
        crowd = Crowd(make=make)
        retries, errors = await crowd.together(500)
        assert BESIDE + 2 == retries
        refused = [each for each in errors if each.__retry__.rule == "budget"]
        assert "its own retry budget is used up" in refused[0].__notes__[0]
        assert "budget=None removes it" in refused[0].__retry__.why
        # One call retries for another after it, so that none is lost.
        assert 2 <= (await crowd.together(500))[0] < 20
        assert 2 == (await crowd.together(1))[0]

    asyncio.run(main())


def test_successes_are_counted_while_tokens_are_missing():
    """A used budget grants one retry for seven successes, in a decorated function and through a policy."""

    async def main(make):
        crowd = Crowd(make=make)
        await crowd.together(500)
        first = (await crowd.together(500))[0]
        crowd.is_down = False
        for _ in range(70):
            await crowd.once()
        crowd.is_down = True
        assert first + 9 <= (await crowd.together(500))[0] <= first + 11
        crowd.is_down = False
        for _ in range(10 * OWN.capacity):
            await crowd.once()
        crowd.is_down = True
        assert BESIDE + 2 == (await crowd.together(500))[0]

    for make in (redrive.retry, through_policy):
        asyncio.run(main(make))


def test_retries_that_succeed_cost_nothing():
    """Retries that help are paid back: as many as are needed, call after call, in a crowd below the limit."""

    async def main():
        flaky = {}

        @redrive.retry(THREE)
        async def once(number):
            flaky[number] = flaky.get(number, 0) + 1
            await checkpoint()
            if flaky[number] == 1:
                raise Busy

        for crowd in range(50):
            await asyncio.gather(*[once((crowd, number)) for number in range(80)])

    asyncio.run(main())


class Gate:
    """Lets the first attempts of a number of threads through together."""

    def __init__(self, size):
        self._barrier, self._passed = threading.Barrier(size), threading.local()

    def wait(self):
        """Wait for the other threads, in the first attempt of this one."""
        if not hasattr(self._passed, "yes"):
            self._passed.yes = True
            self._barrier.wait(60)


def test_plain_functions_are_counted_before_and_after_their_first_success():
    """A plain function in threads uses its budget up, also before its first success, and fills it by successes."""
    gate, state, rules = Gate(150), {"down": True}, []

    @redrive.retry(THREE.with_(attempts=2, backoff=Backoff.constant("50ms"), jitter="none"))
    def once():
        if state["down"]:
            gate.wait()
            raise Busy
        return "ok"

    def work():
        try:
            once()
        except Busy as error:
            rules.append(error.__retry__.rule)

    threads = [threading.Thread(target=work) for _ in range(150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = plan_of(once).own
    assert ({"attempts", "budget"}, True) == (set(rules), own.low)
    state["down"] = False
    assert {"ok"} == {once() for _ in range(OWN.capacity)}
    assert not own.low
    assert "ok" == once()


def plan_of(wrapper):
    """Return the plan of a compiled wrapper."""
    return wrapper.__closure__[wrapper.__code__.co_freevars.index("_rd_plan")].cell_contents


def test_no_budget_limits_nothing():
    """With `budget=None` all attempts of all calls are made."""
    crowd = Crowd(THREE.with_(budget=None))

    assert 1000 == asyncio.run(crowd.together(500))[0]


@pytest.mark.parametrize(
    ("changes", "is_bounded"),
    [
        ({"attempts": 100_000, "deadline": None}, False),
        ({"attempts": None, "deadline": "1d"}, False),
        ({"attempts": 100, "deadline": "1d"}, True),
        ({"attempts": None, "deadline": "1h"}, True),
        ({"attempts": 100_000}, True),
    ],
)
def test_a_consumer_has_no_budget(changes, is_bounded):
    """Calls that may connect again more than a hundred times, for more than an hour, go on side by side."""
    policy = THREE.with_(**changes)

    assert is_bounded is (Plan(policy, "consume").own is not None)


def test_consumers_go_on_side_by_side():
    """Three consumers lose their connections a thousand times, and end when the target is there."""

    async def main():
        crowd = Crowd(THREE.with_(attempts=100_000, deadline=None))
        running = asyncio.ensure_future(crowd.together(3))
        while crowd.calls < 1000 and not running.done():
            await checkpoint()
        crowd.is_down = False
        return (await running)[1]

    assert [] == asyncio.run(main())


def test_a_named_budget_takes_the_place_of_the_own_one():
    """With a budget that the policy names no other one is charged."""
    with isolated():
        budget("target", TokenBudget(capacity=1000, cost=1))
        crowd = Crowd(THREE.with_(budget="target"))

        assert 1000 == asyncio.run(crowd.together(500))[0]


def test_each_owner_has_its_own():
    """Two functions under one policy, two equal policies and a changed policy each have their own budget."""

    async def main():
        assert [BESIDE + 2] * 2 == [(await Crowd().together(500))[0] for _ in range(2)]
        for policy in (THREE.with_(), copy.copy(THREE), pickle.loads(pickle.dumps(THREE)), THREE.with_(attempts=2)):
            assert BESIDE <= (await Crowd(policy, through_policy).together(500))[0] <= BESIDE + 2

    asyncio.run(main())


def test_a_policy_keeps_its_budget_under_an_override():
    """Inside of `override` a policy goes on with its budget, unless that is changed."""

    async def main():
        policy = THREE.with_(groups="any")
        crowd = Crowd(policy, through_policy)
        await crowd.together(500)
        with policy.override(attempts=2):
            assert (await crowd.together(500))[0] < 20
        with policy.override(budget=None):
            assert 1000 == (await crowd.together(500))[0]

    asyncio.run(main())


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_transport_has_one_budget_for_all_requests(colour):
    """Requests of two methods through one transport share its budget, and those of another transport do not."""

    async def refuse(request):
        await checkpoint()
        raise httpx.ConnectError("refused", request=request)

    async def main():
        policy = Policy(attempts=3, backoff=Backoff.constant(0))
        counts = []
        for _ in range(2):
            calls = []

            async def counted(request, calls=calls):
                calls.append(request)
                await refuse(request)

            async with httpx.AsyncClient(transport=AsyncRetryTransport(policy, httpx.MockTransport(counted))) as client:
                requests = [client.request(("GET", "POST")[number % 2], "http://x.test/") for number in range(400)]
                await asyncio.gather(*requests, return_exceptions=True)
            counts.append(len(calls) - 400)
        assert [BESIDE + 2] * 2 == counts

    def lone():
        calls = []

        def refused(request):
            calls.append(request)
            raise httpx.ConnectError("refused", request=request)

        policy = Policy(attempts=3, backoff=Backoff.constant(0))
        with httpx.Client(transport=RetryTransport(policy, httpx.MockTransport(refused))) as client:
            for _ in range(120):
                with pytest.raises(httpx.ConnectError):
                    client.get("http://x.test/")
        assert 360 == len(calls)

    lone() if colour == "sync" else asyncio.run(main())


def test_a_breaker_and_the_own_budget_work_together():
    """A policy with a breaker and no budget has its own budget beside the breaker."""
    breaker = SharedBreaker(redrive.retrying.BreakerSettings(volume_threshold=10_000))
    crowd = Crowd(THREE.with_(breaker=breaker))

    assert BESIDE + 2 == asyncio.run(crowd.together(500))[0]


def test_hedges_are_charged_unless_the_call_is_alone():
    """A lone hedged call always has its copy; of those side by side a hundred and one have one."""
    policy = Policy(on=Busy, attempts=1, idempotent=True, hedge=Hedge("1ms"))

    async def made(calls):
        """Return the number of copies that run at last, for calls that wait for one another."""
        copies, ends = 0, asyncio.Event()

        async def slow():
            nonlocal copies
            copies += 1
            await ends.wait()

        call = redrive.retry(policy)(slow)
        tasks = [asyncio.create_task(call()) for _ in range(calls)]
        while copies < calls + min(calls, BESIDE + 1):
            await checkpoint()
        for _ in range(calls):
            await checkpoint()
        ends.set()
        await asyncio.gather(*tasks)
        return copies

    async def main():
        assert [2, 2, 2] == [await made(1) for _ in range(3)]
        assert 300 + BESIDE + 1 == await made(300)

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_forgets_the_call_that_was_alone():
    """In the child of a fork a call is alone, whatever a thread of the parent was doing."""

    class Other:
        live = True

    own = OwnBudget()
    other, mine = Other(), Other()
    assert own.admits(other)
    assert not own.admits(mine)
    child = os.fork()
    if child == 0:
        os._exit(0 if own.admits(mine) else 1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    other.live = False
    assert own.admits(mine)


def test_no_budget_is_not_the_default():
    """`budget=None` and a policy without `budget` differ: in equality, hash, repr, arguments and stored form."""
    unset, none = Policy(on=Busy), Policy(on=Busy, budget=None)

    assert unset != none
    assert 2 == len({unset, none})
    assert "budget=None" in repr(none)
    assert "budget" not in repr(unset)
    assert (False, True) == (unset.budget_given, none.budget_given)
    assert (None, False) == (unset.to_dict()["budget"], none.to_dict()["budget"])
    for policy in (unset, none, unset & none, unset | Policy(on=Busy)):
        assert policy == Policy.from_dict(policy.to_dict()) == pickle.loads(pickle.dumps(policy))
    assert none.with_(budget=...) == unset
    assert (True, False) == ((unset & none).budget_given, (unset | unset).budget_given)
    assert "key" == (none | Policy(on=Busy, budget="key")).budget


def test_a_stored_policy_does_not_mention_it():
    """The JSON of a job's policy is the same with `budget=None` and without, as before there was a default."""
    unset, none = Policy(attempts=3), Policy(attempts=3, budget=None)

    assert freeze(unset).document == freeze(none).document
    assert '"budget":null' in freeze(none).document


def test_a_directive_cannot_say_no_budget():
    """A policy with `budget=None` has no directive, and the message names the field."""
    with pytest.raises(PolicyValueError, match="budget"):
        Policy.parse("3 1s").with_(budget=None).directive()


def test_an_outcome_names_the_budget():
    """The outcome of a refused call has the rule `budget`."""

    async def main():
        async def busy():
            await checkpoint()
            raise Busy

        found = await asyncio.gather(*[THREE.aoutcome(busy) for _ in range(300)])
        assert any(isinstance(each, GaveUp) and each.rule == "budget" for each in found)

    asyncio.run(main())
