"""One policy, two places: a function called in process and a durable job get the same decisions (I8, D07)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import accumulate, count
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.app.app import App
from redrive.engine.lifecycle import State
from redrive.errors import GiveUp, RetryAfter
from redrive.policy import Backoff, Policy, Retry
from redrive.policy.outcome import GaveUp, Ok
from redrive.retrying.context import _in_force, using
from redrive.testing import VirtualClock, drain
from tests.policy.strategies import names, policies, samples

if TYPE_CHECKING:
    from redrive.policy.outcome import Record

DAY = 86_400


class Fatal(Exception):
    """A permanent failure."""


class Transient(Exception):
    """A transient failure."""


class Decided(NamedTuple):
    """What was decided after one attempt, as both places report it.

    Attributes:
        delay: the wait, if there is one.
        rule: what chose it.
        why: the sentence, where the call ends; None before that and after a success.
    """

    delay: timedelta | None
    rule: str | None
    why: str | None


class ScriptedFunction:
    """A function that fails with scripted errors, and then succeeds.

    Attributes:
        calls: how often it was called.
    """

    def __init__(self, clock: VirtualClock, steps: list[tuple[Exception, timedelta]]) -> None:
        self.calls = 0
        self._clock = clock
        self._steps = steps

    def __call__(self) -> None:
        """Take some time, then fail or succeed."""
        self.calls += 1
        if self.calls <= len(self._steps):
            error, takes = self._steps[self.calls - 1]
            self._clock.advance(takes)
            raise error


Sample = float | Callable[[], float]


def in_process(
    policy: Policy, make: Callable[[VirtualClock], ScriptedFunction], sample: Sample
) -> tuple[list[Decided], bool]:
    """Return the decisions of a call, and whether it succeeded in the end."""
    clock = VirtualClock()
    with _in_force(clock=clock, roll=sample if callable(sample) else lambda: sample):
        outcome = policy.outcome(make(clock))
    return [*decisions_of(outcome.record)], isinstance(outcome, Ok)


def decisions_of(record: Record) -> list[Decided]:
    """Return the decisions in the record of a call."""
    found = []
    for each in record.timeline:
        match each.decision:
            case Retry(delay, _, rule):
                found.append(Decided(delay, rule, None))
            case None:
                found.append(Decided(None, None, None))
            case ended:
                found.append(Decided(None, ended.rule, ended.why))
    return found


def durably(
    policy: Policy, make: Callable[[VirtualClock], ScriptedFunction], sample: Sample
) -> tuple[list[Decided], bool]:
    """Return the decisions of a job, and whether it succeeded in the end."""
    clock = VirtualClock()
    app = App("memory://", clock=clock)
    script = make(clock)

    @app.task(retry=policy)
    def work() -> None:
        script()

    try:
        job = work.enqueue()
        drain(app, sample=sample if callable(sample) else lambda: sample)
        attempts, state = job.attempts, job.refresh().state
    finally:
        app.close()
    ended = [None if each.delay is not None or each.rule is None else each.verdict for each in attempts]
    decided = [Decided(each.delay, each.rule, why) for each, why in zip(attempts, ended, strict=True)]
    return decided, state is State.SUCCEEDED


def settled(policy: Policy, deadline: timedelta | None, over: str, *, idempotent: bool) -> Policy:
    """Return the policy with every place-dependent default set, and without the options that only one place has."""
    over = over if deadline is not None else "give_up"
    on = policy.on or "builtins.Exception"
    changes = {"deadline": deadline, "over_deadline": over, "idempotent": idempotent, "on": on}
    return policy.with_(**changes, catch=None, budget=None, attempt_timeout=None).cap(DAY)


plain = st.builds(
    settled,
    policies(),
    st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=10)),
    st.sampled_from(["give_up", "truncate"]),
    idempotent=st.booleans(),
)
wholes = st.one_of(
    plain,
    st.builds(lambda a, b: a & b, plain, plain),
    st.builds(lambda a, b: a | b, plain, plain),
    st.builds(lambda a, b: a >> b, plain, plain),
    st.builds(lambda a, b, n: (a >> b).take(n), plain, plain, st.integers(0, 4)),
    st.builds(lambda a, name: a.per(name), plain, names),
    st.builds(lambda a, n: a.take(n), plain, st.integers(0, 4)),
    st.builds(lambda a, t: a.at_least(t), plain, st.integers(0, DAY)),
    st.builds(lambda a: a.with_(backoff=Backoff.smooth(1, DAY), jitter=None), plain),
)
errors = st.one_of(
    st.sampled_from([OSError, ConnectionError, ValueError, Transient]).map(lambda kind: kind("again")),
    st.builds(RetryAfter, st.integers(0, 10**5)),
    st.builds(GiveUp, st.just("stolen card")),
    st.builds(lambda: ExceptionGroup("several", [OSError("again"), ValueError("again")])),
)
steps = st.lists(st.tuples(errors, st.timedeltas(timedelta(0), timedelta(days=1)) | st.just(timedelta(0))), max_size=10)


@pytest.mark.case("I8")
@settings(max_examples=60)
@given(wholes, steps, samples)
def test_a_policy_decides_the_same_in_process_and_durably(
    policy: Policy, script: list[tuple[Exception, timedelta]], sample: float
):
    """Whatever goes wrong, however long it takes: the delays, the rules, the reasons and the end are the same."""

    def make(clock: VirtualClock) -> ScriptedFunction:
        return ScriptedFunction(clock, script)

    assert in_process(policy, make, sample) == durably(policy, make, sample)


@pytest.mark.case("D07")
@pytest.mark.parametrize("place", [in_process, durably])
def test_no_delay_is_computed_after_the_last_attempt(place):
    """Refused at the last attempt or used up: two waits for three executions, and none after the third."""
    policy = Policy(on=Transient, attempts=3, backoff=Backoff.constant(5), jitter="none")
    wait = Decided(timedelta(seconds=5), "backoff", None)
    made = []

    def make(*errors: Exception) -> Callable[[VirtualClock], ScriptedFunction]:
        def script(clock: VirtualClock) -> ScriptedFunction:
            made.append(ScriptedFunction(clock, [(error, timedelta(0)) for error in errors]))
            return made[-1]

        return script

    refused, _ = place(policy, make(Transient("a"), Transient("b"), Fatal("stop now")), 0.5)
    used_up, _ = place(policy, make(Transient("a"), Transient("b"), Transient("c")), 0.5)

    assert [wait, wait, None] == [*refused[:2], refused[2].delay]
    assert "not_matched" == refused[2].rule
    assert [wait, wait, Decided(None, "attempts", "3 of 3 attempts failed")] == used_up
    assert [3, 3] == [script.calls for script in made]


@pytest.mark.parametrize("place", [in_process, durably])
def test_a_smooth_backoff_remembers_from_attempt_to_attempt(place):
    """Each retry is due within its own span of time, independently of the earlier retries."""
    backoff = Backoff.smooth(1)
    ends = [sum(backoff.draw(retry, None, 0.0, 0.0) for retry in range(1, last + 1)) for last in range(1, 7)]
    policy = Policy(on=Transient, attempts=6, deadline=None, backoff=backoff, idempotent=True)
    draws = (number * number * 0.3719 % 1 for number in count(1))  # high and low, in no order

    for _ in range(20):
        decided, _ = place(
            policy, lambda clock: ScriptedFunction(clock, [(Transient(), timedelta(0))] * 6), lambda: next(draws)
        )
        places = list(accumulate(each.delay / timedelta(seconds=1) for each in decided[:-1]))
        assert all(low - 1e-4 < at < high + 1e-4 for low, at, high in zip(ends, places, ends[1:], strict=False))


POLICY = Policy(on=Transient, attempts=3, backoff=Backoff.constant(5), jitter="none")


@pytest.mark.case("D07")
@pytest.mark.parametrize("last", [Fatal("stop now"), Transient("c")])
def test_the_last_error_surfaces_as_it_is(last):
    """In process the caller gets the last error itself, and on it the record of all three."""
    clock = VirtualClock()
    errors = [Transient("a"), Transient("b"), last]

    with using(clock=clock), pytest.raises(type(last)) as raised:
        POLICY.call(ScriptedFunction(clock, [(error, timedelta(0)) for error in errors]))

    assert last is raised.value
    assert ["a", "b", str(last)] == [each.failure.message for each in raised.value.__retry__.timeline]
    assert 10.0 == clock.monotonic()


@pytest.mark.case("D07")
@pytest.mark.parametrize("last", [Fatal("stop now"), Transient("c")])
def test_a_dead_job_names_the_last_error(app, clock, last):
    """Dead jobs keep all three errors in order, name the last one as their reason, and are due no more."""
    script = ScriptedFunction(clock, [(error, timedelta(0)) for error in (Transient("a"), Transient("b"), last)])

    @app.task(retry=POLICY)
    def work() -> None:
        script()

    job = work.enqueue()
    drained = drain(app)

    assert ["a", "b", str(last)] == [each.error for each in job.attempts]
    assert (State.DEAD, str(last)) == (job.refresh().state, job.record.error)
    assert (timedelta(seconds=10), None) == (drained.took, drained.next_due_at)


def test_defaults_differ_between_process_and_job():
    """In process a call without a deadline ends after 45 s; a job continues."""
    policy = Policy(on=Transient, attempts=3, backoff=Backoff.constant(60), jitter="none")

    def make(clock: VirtualClock) -> ScriptedFunction:
        return ScriptedFunction(clock, [(Transient("a"), timedelta(0))])

    outcome = policy.outcome(make(VirtualClock()))

    assert isinstance(outcome, GaveUp)
    assert "deadline" == outcome.rule
    assert ([Decided(timedelta(seconds=60), "backoff", None), Decided(None, None, None)], True) == durably(
        policy, make, 0.5
    )
