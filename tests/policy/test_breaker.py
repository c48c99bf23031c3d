"""Tests of `redrive.policy.breaker`: the states in turn, and what holds for every course of events."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PolicyValueError
from redrive.policy.breaker import (
    Admitted,
    Ask,
    BreakerSettings,
    BreakerState,
    BreakerStatus,
    Dropped,
    FailureReport,
    Noted,
    Probe,
    Refused,
    Reset,
    SuccessReport,
    as_of,
    initial,
    step,
)

CLOSED, OPEN, HALF_OPEN, DISABLED = (
    BreakerStatus.CLOSED,
    BreakerStatus.OPEN,
    BreakerStatus.HALF_OPEN,
    BreakerStatus.DISABLED,
)
QUICK = BreakerSettings(volume_threshold=1, sleep_window="50ms")


def after(settings, *events, state=None):
    """Return the state and the last answer after events, each with its instant in seconds."""
    state, answer = initial(settings) if state is None else state, None
    for event, now in events:
        state, answer = step(settings, state, event, now)
    return state, answer


def opened(settings=QUICK, now=0.0):
    """Return a state that has just opened, and the token of a call that was admitted before."""
    state, answer = after(settings, (Ask(), now))
    while state.status is CLOSED:
        state, _ = step(settings, state, FailureReport(answer.token), now)
    return state, answer.token


def half_open(settings=QUICK, now=0.051):
    """Return a state that waits for its canary, and the canary's answer."""
    state, _ = opened(settings)
    return step(settings, state, Ask(), now)


class TestSettings:
    """The settings of a breaker."""

    def test_the_defaults_are_those_of_the_sdks(self):
        """Volume 20, 50 %, 5 s of sleep, a window of a minute, and 5 s for a canary that is a request."""
        settings = BreakerSettings()
        assert (20, 50, "request", True) == (
            settings.volume_threshold,
            settings.error_threshold,
            settings.canary,
            settings.enabled,
        )
        assert [timedelta(seconds=each) for each in (5, 60, 5)] == [
            settings.sleep_window,
            settings.rolling_window,
            settings.canary_timeout,
        ]

    @pytest.mark.parametrize(
        "change",
        [
            {"volume_threshold": 0},
            {"volume_threshold": True},
            {"error_threshold": 0},
            {"error_threshold": 101},
            {"error_threshold": 0.5},
            {"canary": "ping"},
            {"rolling_window": 0},
            {"canary_timeout": 0},
            {"sleep_window": -1},
        ],
    )
    def test_invalid_settings_are_refused(self, change):
        """Invalid settings are refused, all but a negative span by their name."""
        with pytest.raises(PolicyValueError, match=next(iter(change)) if change != {"sleep_window": -1} else "-1"):
            BreakerSettings(**change)


class TestClosed:
    """A closed breaker counts."""

    def test_a_closed_breaker_admits_calls(self):
        """Calls are admitted and get the number of the era as their token."""
        assert (initial(QUICK), Admitted(0)) == after(QUICK, (Ask(), 0.0))

    def test_a_breaker_opens_at_its_volume(self):
        """Nineteen failures leave it closed, the twentieth opens it."""
        state, _ = after(BreakerSettings(), *[(FailureReport(0), 0.0)] * 19)
        assert (CLOSED, OPEN) == (state.status, step(BreakerSettings(), state, FailureReport(0), 0.0)[0].status)

    @pytest.mark.parametrize("percentage", [1, 29, 57, 58, 99, 100])
    def test_percentages_are_whole_numbers(self, percentage):
        """Among a hundred results, exactly the configured percentage of failures opens the breaker."""
        settings = BreakerSettings(volume_threshold=100, error_threshold=percentage)
        good = [(SuccessReport(0), 0.0)] * (100 - percentage)
        state, _ = after(settings, *good, *[(FailureReport(0), 0.0)] * (percentage - 1))
        assert (CLOSED, OPEN) == (state.status, step(settings, state, FailureReport(0), 0.0)[0].status)

    def test_successes_do_not_open_it(self):
        """Successes that complete the volume do not open the breaker; the next failure does."""
        settings = BreakerSettings(volume_threshold=3)
        state, _ = after(settings, (FailureReport(0), 0.0), (FailureReport(0), 0.0), (SuccessReport(0), 0.0))
        assert (CLOSED, OPEN) == (state.status, step(settings, state, FailureReport(0), 0.0)[0].status)

    @pytest.mark.parametrize(("now", "status"), [(0.1, OPEN), (0.101, CLOSED)])
    def test_results_leave_the_window(self, now, status):
        """Failures count for exactly the length of the window."""
        settings = BreakerSettings(volume_threshold=2, rolling_window="100ms")
        assert status is after(settings, (FailureReport(0), 0.0), (FailureReport(0), now))[0].status

    def test_the_window_rolls(self):
        """Results of the last hundred milliseconds count, at any instant."""
        settings = BreakerSettings(volume_threshold=2, rolling_window="100ms")
        assert (
            OPEN
            is after(settings, (SuccessReport(0), 0.0), (FailureReport(0), 0.09), (FailureReport(0), 0.11))[0].status
        )

    def test_a_dropped_call_does_not_count(self):
        """Calls that were never sent do not count as results."""
        assert (initial(QUICK), Noted(is_counted=False)) == after(QUICK, (Dropped(0), 0.0))


class TestOpen:
    """An open breaker refuses and sleeps."""

    @pytest.mark.parametrize(("now", "wait"), [(0.0, 50.001), (0.04, 10.001), (0.05, 0.001)])
    def test_an_open_breaker_refuses_with_the_remaining_sleep(self, now, wait):
        """Calls are refused until the sleep is over, its last instant included, with the rest of the sleep."""
        state, _ = opened()
        assert (state, Refused(timedelta(milliseconds=wait))) == step(QUICK, state, Ask(), now)

    def test_after_its_sleep_the_next_call_is_the_canary(self):
        """After the sleep the first call is admitted, under a token of its own."""
        state, answer = half_open()
        assert (HALF_OPEN, Admitted(2, is_canary=True)) == (state.status, answer)

    def test_instants_are_exact(self):
        """Instants are computed without rounding errors, as in 1.05 s - 1 s."""
        state, _ = opened(now=1.0)
        assert [Refused, Admitted] == [type(step(QUICK, state, Ask(), now)[1]) for now in (1.05, 1.051)]

    def test_a_straggler_does_not_extend_the_sleep(self):
        """Failures of calls that were sent before the breaker opened change nothing."""
        state, token = opened()
        assert (state, Noted(is_counted=False)) == step(QUICK, state, FailureReport(token), 0.04)

    def test_the_canary_may_be_a_probe(self):
        """With probes the caller is refused all the same, and the client owes a canary under the token."""
        settings = QUICK.with_(canary="probe")
        state, answer = half_open(settings)
        assert (HALF_OPEN, Probe(2)) == (state.status, answer)
        assert CLOSED is step(settings, state, SuccessReport(answer.token), 0.06)[0].status


class TestHalfOpen:
    """A half-open breaker waits for its canary."""

    def test_while_the_canary_runs_other_calls_are_refused(self):
        """While the canary is out, a call is refused until the canary's time is up."""
        state, _ = half_open()
        assert (state, Refused(timedelta(seconds=5, microseconds=1))) == step(QUICK, state, Ask(), 0.051)

    def test_a_good_canary_closes_it(self):
        """After the canary's success the breaker is closed, with empty counts."""
        state, answer = half_open()
        assert BreakerState(CLOSED, era=3) == step(QUICK, state, SuccessReport(answer.token), 0.06)[0]

    def test_a_bad_canary_opens_it(self):
        """After the canary's failure the breaker is open, and its sleep starts then."""
        state, answer = half_open()
        assert BreakerState(OPEN, era=3, since=60_000) == step(QUICK, state, FailureReport(answer.token), 0.06)[0]

    def test_a_dropped_canary_is_replaced_by_the_next_call(self):
        """After a canary without a result, the next call is the canary at once."""
        state, answer = half_open()
        state, _ = step(QUICK, state, Dropped(answer.token), 0.06)
        assert Admitted(4, is_canary=True) == step(QUICK, state, Ask(), 0.06)[1]

    @pytest.mark.parametrize("result", [SuccessReport, FailureReport, Dropped])
    def test_stragglers_do_not_decide(self, result):
        """Results of calls that were sent before the breaker opened neither close nor open it."""
        state, _ = half_open()
        assert (state, Noted(is_counted=False)) == step(QUICK, state, result(0), 0.06)

    @pytest.mark.parametrize(("now", "status"), [(5.051, HALF_OPEN), (5.051001, OPEN)])
    def test_a_lost_canary_has_failed(self, now, status):
        """Canaries without a report count as failed after their timeout."""
        state, _ = half_open()
        assert status is as_of(QUICK, state, now).status

    def test_the_sleep_after_a_lost_canary_counts_from_its_loss(self):
        """However late the next caller comes, the breaker has slept since the canary was lost."""
        state, _ = half_open()
        assert [Refused, Admitted] == [type(step(QUICK, state, Ask(), now)[1]) for now in (5.1, 5.102)]

    def test_a_canary_that_comes_after_its_time_is_a_straggler(self):
        """Successes of a canary that has timed out do not close the breaker."""
        state, answer = half_open()
        assert OPEN is step(QUICK, state, SuccessReport(answer.token), 5.06)[0].status


class TestReset:
    """A reset begins anew."""

    @pytest.mark.parametrize("make", [lambda: (initial(QUICK), 0), opened, half_open])
    def test_a_reset_closes_the_breaker_from_any_state(self, make):
        """Whatever the state, it is closed after a reset, with nothing counted."""
        state, _ = make()
        assert BreakerState(CLOSED, era=state.era + 1) == step(QUICK, state, Reset(), 0.06)[0]

    def test_a_reset_ignores_calls_in_flight(self):
        """Failures of calls from before the reset do not count."""
        state, _ = after(QUICK, (Reset(), 0.0), (FailureReport(0), 0.0))
        assert CLOSED is state.status


def test_events_and_answers_are_values():
    """Two reports of the same token are equal only if they report the same, and a question is true."""
    assert (False, False, True, True) == (
        SuccessReport(1) == FailureReport(1),
        Ask() == Reset(),
        FailureReport(1) == FailureReport(1),
        bool(Ask()),
    )


def test_a_disabled_breaker_admits_and_counts_nothing():
    """It stays as it is, whatever happens."""
    settings = QUICK.with_(enabled=False)
    state, answer = after(settings, *[(FailureReport(0), 0.0)] * 3, (Ask(), 0.0))
    assert (initial(settings), Admitted(0), DISABLED) == (state, answer, state.status)
    assert DISABLED is step(settings, state, Reset(), 0.0)[0].status


# ---------------------------------------------------------------------------------------------------------------- laws


class Move(NamedTuple):
    """A step in a sequence of events: time passes, then a caller asks, reports or resets."""

    kind: str
    pick: int
    passes: float


moves = st.builds(
    Move,
    st.sampled_from(["ask", "ask", "fail", "fail", "succeed", "drop", "reset"]),
    st.integers(0, 100),
    st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.05, 0.06, 0.2, 1.0, 7.0]),
)
courses = st.lists(moves, max_size=60)
settings_ = st.builds(
    BreakerSettings,
    volume_threshold=st.integers(1, 4),
    error_threshold=st.integers(1, 100),
    sleep_window=st.just("50ms"),
    rolling_window=st.sampled_from(["100ms", "1s"]),
    canary_timeout=st.just("5s"),
    canary=st.sampled_from(["request", "probe"]),
)
REPORTS = {"fail": FailureReport, "succeed": SuccessReport, "drop": Dropped}


class BreakerStep(NamedTuple):
    """One step of a course: what was before, what happened when, what came of it."""

    before: BreakerState
    event: object
    now: float
    after: BreakerState
    answer: object


def walk(settings, course):
    """Carry a course of events out; reports are about calls that were admitted, or made up if there are none."""
    state, now, tokens = initial(settings), 0.0, [0]
    for move in course:
        now += move.passes
        token = tokens[move.pick % len(tokens)]
        event = {"ask": Ask(), "reset": Reset()}.get(move.kind) or REPORTS[move.kind](token)
        before = as_of(settings, state, now)
        state, answer = step(settings, state, event, now)
        if isinstance(answer, Admitted | Probe):
            tokens.append(answer.token)
        yield BreakerStep(before, event, now, state, answer)


@given(settings_, courses)
def test_law_stragglers_change_nothing(settings, course):
    """Reports of another era leave the state as time alone has made it, in every state."""
    for each in walk(settings, course):
        if getattr(each.event, "token", each.before.era) != each.before.era:
            assert (each.before, Noted(is_counted=False)) == (each.after, each.answer)


@given(settings_, courses)
def test_law_one_canary(settings, course):
    """Each time that it is half open, exactly one call or probe has the token that it waits for."""
    canaries = [
        each.answer.token
        for each in walk(settings, course)
        if isinstance(each.answer, Probe) or (isinstance(each.answer, Admitted) and each.answer.is_canary)
    ]
    assert len(set(canaries)) == len(canaries)


@given(settings_, courses)
def test_law_an_open_breaker_sleeps(settings, course):
    """From opening by a failure to the end of the sleep, no call is admitted."""
    opened_at = None
    for each in walk(settings, course):
        if isinstance(each.event, FailureReport) and each.answer.is_counted and each.after.status is OPEN:
            opened_at = each.now
        elif isinstance(each.event, Reset):
            opened_at = None
        elif opened_at is not None and isinstance(each.answer, Admitted | Probe):
            assert round((each.now - opened_at) * 1_000_000) > 50_000
            opened_at = None


@given(settings_, courses)
def test_law_it_opens_for_a_reason(settings, course):
    """Closed breakers open by a failure only, with the volume and the percentage reached."""
    for each in walk(settings, course):
        if each.before.status is CLOSED and each.after.status is OPEN:
            assert isinstance(each.event, FailureReport)


@given(settings_, courses)
def test_law_totals_are_the_sums_of_the_slots(settings, course):
    """Totals are those of the slots, slots are in order, and there are never more than the window has."""
    for each in walk(settings, course):
        slots = each.after.slots
        assert (sum(good for _, good, _ in slots), sum(bad for _, _, bad in slots)) == each.after[4:]
        assert sorted({number for number, _, _ in slots}) == [number for number, _, _ in slots]
        assert len(slots) <= 101


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 0.3)), max_size=40))
def test_law_the_window_holds_what_is_young_enough(results):
    """After each result the counts are those of the results of the last second, to a hundredth of it."""
    settings = BreakerSettings(volume_threshold=10**6, rolling_window="1s")
    state, now, seen = initial(settings), 0.0, []
    for is_good, passes in results:
        now += passes
        seen.append(now)
        state, _ = step(settings, state, (SuccessReport if is_good else FailureReport)(0), now)
        total = state.successes + state.failures
        assert sum(now - each <= 1.0 for each in seen) <= total <= sum(now - each <= 1.0101 for each in seen)


@given(settings_, courses)
def test_law_the_state_is_plain_data(settings, course):
    """States are written as JSON and read back unchanged."""
    for each in walk(settings, course):
        status, era, since, slots, *sums = json.loads(json.dumps([each.after.status.value, *each.after[1:]]))
        assert each.after == BreakerState(BreakerStatus(status), era, since, tuple(map(tuple, slots)), *sums)


@given(settings_, courses, st.floats(0, 100))
def test_law_time_that_goes_back_violates_no_invariant(settings, course, back):
    """Instants before the last one are accepted, and the sums stay right."""
    for each in walk(settings, course):
        state, _ = step(settings, each.after, FailureReport(each.after.era), each.now - back)
        assert (sum(good for _, good, _ in state.slots), sum(bad for _, _, bad in state.slots)) == state[4:]
