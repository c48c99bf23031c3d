"""Strategies that are functions of the user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive import App
from redrive.engine.origin import Kind
from redrive.engine.recurring import policy_document, read, read_policy
from redrive.errors import ScheduleError, ScheduleSyntaxError
from redrive.schedule import (
    FunctionStrategy,
    RefreshEffect,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    Schedule,
    Strategy,
    refresh,
)
from redrive.testing import VirtualClock, drain

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
HOURLY = Schedule.cron("0 * * * *")


def _nothing() -> None:
    """Do nothing."""


def patient(retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
    """Return a strategy by the number of failures."""
    assert retry_at.tzinfo is planned_at.tzinfo is UTC
    return Strategy.UNTIL_SUCCESS if failures == 1 else Strategy.PLANNED_ONLY


def one_of(strategy: Strategy) -> Any:
    """Return a function that always chooses one strategy, by its text."""
    return lambda retry_at, planned_at, failures: strategy.value


def failing(policy: RefreshPolicy, attempts: int = 1, *, now: datetime = T0) -> RefreshState:
    """Return the state after so many failed attempts at the same instant."""
    state = RefreshState()
    for _ in range(attempts):
        running = refresh.trigger(policy, state, now=now, uid="u").state
        state = refresh.failure(policy, running, now=now, uid="u").state
    return state


def test_a_function_chooses_for_each_retry():
    """The first retry of this one is made although it does not fit; the second one waits for the planned refresh."""
    policy = RefreshPolicy(schedule=HOURLY, timeout="1h", delays=["10m", "10m"], strategy=patient)

    assert (T0 + 10 * MINUTE, 1) == (failing(policy).refresh_at, failing(policy).attempt_no)
    assert (T0 + HOUR, 2) == (failing(policy, 2, now=T0 + MINUTE).refresh_at, failing(policy, 2).attempt_no)


@given(
    st.sampled_from(list(Strategy)),
    st.timedeltas(timedelta(0), 3 * HOUR),
    st.none() | st.timedeltas(timedelta(0), 3 * HOUR),
    st.integers(1, 9),
)
def test_a_chosen_strategy_does_what_it_does_alone(
    strategy: Strategy, wait: timedelta, planned: timedelta | None, failures: int
):
    """A function that always returns one strategy is that strategy."""
    alone = RefreshPolicy(schedule=HOURLY, strategy=strategy)
    chosen = replace(alone, strategy=one_of(strategy))
    following = None if planned is None else T0 + planned

    assert refresh.aligned(alone, T0 + wait, following, failures=failures) == refresh.aligned(
        chosen, T0 + wait, following, failures=failures
    )


def test_two_policies_with_one_function_are_equal():
    """A function is a value of the policy."""
    assert RefreshPolicy(strategy=patient) == RefreshPolicy(strategy=FunctionStrategy(patient))
    assert hash(RefreshPolicy(strategy=patient)) == hash(RefreshPolicy(strategy=patient))
    assert RefreshPolicy(strategy=patient) != RefreshPolicy()


async def _later(retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
    return Strategy.ALIGN


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, r"strategy is 'retry_align_planned', .*, or a function of .*, not 7; Strategy\.register\(name, function\)"),
        (None, "or a function of .*, not None"),
        (int, "or a function of .*, not <class 'int'>"),
        ("by magic", "or a function of .*, not 'by magic'"),
        (_later, "strategy=_later is a coroutine function"),
        (lambda: Strategy.ALIGN, "<lambda> raised TypeError for failure 1"),
        (lambda *_: None, "<lambda> gave a value of the type NoneType for failure 1, which is no strategy: it returns"),
        (lambda *_: "soon", "<lambda> gave 'soon' for failure 1, which is no strategy: it returns retry_align_planned"),
    ],
)
def test_what_cannot_be_called_is_refused_at_once(given: Any, why: str):
    """A policy is refused when it is made, not after the first failure."""
    with pytest.raises(ScheduleError, match=why):
        RefreshPolicy(schedule=HOURLY, strategy=given)


def test_a_list_of_delays_may_come_from_a_backoff():
    """Their number is that of the retries, so a function takes a number; the error shows how."""
    with pytest.raises(
        ScheduleError, match=r"or those of a backoff, such as Backoff\.exponential\('1m'\)\.delays\(6\)"
    ):
        RefreshPolicy(delays=lambda retry: retry)  # type: ignore[arg-type] # the subject


def test_a_function_that_raises_gives_up_with_its_error():
    """As a job with a backoff that raises. The text can be stored, and the running attempt was not hindered."""

    def mine(retry_at: datetime, planned_at: datetime, failures: int) -> Strategy:
        return {1: Strategy.ALIGN}[failures]

    policy = RefreshPolicy(schedule=HOURLY, delays=["1m", "1m"], strategy=mine)
    running = refresh.trigger(policy, failing(policy), now=T0 + MINUTE, uid="u").state
    move = refresh.failure(policy, running, now=T0 + MINUTE, uid="u")

    assert (None, "u") == (running.refresh_at, running.attempt_uid)
    assert RefreshOutcome.SUCCEEDED is refresh.success(policy, running, now=T0 + MINUTE, uid="u").outcome
    assert RefreshOutcome.GAVE_UP is move.outcome
    assert RefreshEffect.NOTIFY in move.effects
    assert (move.state.disabled_reason or "").endswith("mine raised KeyError for failure 2: '2'")


# ---------------------------------------------------------------------------------------------------------- stored


@pytest.mark.parametrize("call", [RefreshPolicy.to_dict, lambda policy: App("memory://").refresh(policy)(_nothing)])
def test_a_function_without_a_name_cannot_be_stored(call: Any):
    """The error names the function, and how it is given a name."""
    with pytest.raises(ScheduleError, match=r"the function patient cannot be stored: Strategy\.register\(name"):
        call(RefreshPolicy(schedule=HOURLY, strategy=patient))


def test_a_registered_function_is_stored_by_its_name():
    """In JSON and in English; both are read where the function is registered."""
    Strategy.register('patient "one".', patient)
    policy = RefreshPolicy(schedule=HOURLY, strategy='patient "one".')

    assert FunctionStrategy(patient, 'patient "one".') == policy.strategy
    assert 'patient "one".' == policy.to_dict()["strategy"]
    assert policy == RefreshPolicy.from_dict(policy.to_dict()) == RefreshPolicy.parse(str(policy))


def test_a_refresh_with_a_registered_function_runs():
    """The way that the message names works."""
    Strategy.register("patient in a test", patient)
    clock = VirtualClock(T0)
    app, begun = App("memory://", clock=clock), []

    @app.refresh('Refresh every hour; allow 1 hour; retry after 10, 10 minutes; use the strategy "patient in a test"')
    def feed() -> None:
        begun.append(f"{clock.now():%H:%M}")
        if len(begun) <= 2:
            raise OSError

    feed.track("a")
    drain(app, within="90m")
    app.close()

    assert ["00:00", "00:10", "01:00"] == begun


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('Refresh hourly; use the strategy "lost"', r"line 1, column 17: strategy is .*, not 'lost'"),
        ("Refresh hourly; use the strategy patient", r"not understood: 'patient': the name of a strategy belongs here"),
        ('Use strategy "whichever_first"; retry or refresh whichever comes first', "two overlap strategies"),
    ],
)
def test_sentences_name_a_known_strategy(text: str, why: str):
    """An unknown name is refused with its place."""
    with pytest.raises(ScheduleSyntaxError, match=why):
        RefreshPolicy.parse(text)


def test_a_policy_without_a_name_is_written_too():
    """Its sentence has the name of the function, for screens; it cannot be read back."""
    assert 'Use the strategy "patient"' in str(RefreshPolicy(schedule=HOURLY, strategy=patient)).splitlines()


def test_a_process_without_the_function_leaves_the_refresh_alone():
    """The declaration cannot be read there, until the function is registered."""
    Strategy.register("late in a test", patient)
    app = App("memory://")
    made = app.refresh(RefreshPolicy(schedule=HOURLY, strategy="late in a test"))(_nothing).definition
    document = made.document.replace("late in a test", "later in a test")
    app.close()

    assert None is read("feed", Kind.REFRESH, document)
    with pytest.raises(ScheduleError, match=r"policy: strategy is .*, not 'later in a test'"):
        read_policy(policy_document(made.policy).replace("late in a test", "later in a test"))
    Strategy.register("later in a test", patient)
    assert None is not read("feed", Kind.REFRESH, document)


@pytest.mark.parametrize(
    ("name", "function", "why"),
    [
        ("", patient, "the name is a text that can be stored"),
        (7, patient, "the name is a text that can be stored"),
        ("\ud800", patient, "the name is a text that can be stored"),
        ("planned_only", patient, "'planned_only', ...*: the name is taken by another strategy"),
        ("taken in a test", len, "the name is taken by another strategy"),
        ("wrong in a test", len, "the strategy function wrong in a test raised TypeError for failure 1"),
    ],
)
def test_what_cannot_be_registered_is_refused(name: Any, function: Any, why: str):
    """A name belongs to one function, which must be a strategy."""
    Strategy.register("taken in a test", patient)
    Strategy.register("taken in a test", patient)
    with pytest.raises(ScheduleError, match=why):
        Strategy.register(name, function)


def test_lint_does_not_guess_what_a_function_chooses():
    """Warnings about retries that do not fit depend on the strategy."""
    spans: dict[str, Any] = {"schedule": HOURLY, "timeout": "2h", "delays": ["1m"], "give_up_after": "7d"}

    assert RefreshPolicy(**spans).lint()
    assert () == RefreshPolicy(**spans, strategy=patient).lint()
