"""The moves of a refresh: laws that hold in every history, and the moves that no time line shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.errors import ScheduleError
from redrive.schedule import (
    Action,
    Exhausted,
    GiveUpSince,
    RecurrenceRule,
    RefreshEffect,
    RefreshOutcome,
    RefreshPolicy,
    RefreshState,
    RefreshTransition,
    Schedule,
    Strategy,
    refresh,
)

T0 = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""The day before Europe's clocks are advanced."""
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAILY = Schedule(rules=(RecurrenceRule.parse("FREQ=DAILY;BYHOUR=2,6,16;BYMINUTE=30"),), tz="Europe/Kyiv")
FEW = Schedule(start=datetime(2026, 3, 28), rules=(RecurrenceRule.parse("FREQ=HOURLY;COUNT=20"),))  # noqa: DTZ001 - wall clock


def counted(policy: RefreshPolicy) -> st.SearchStrategy[RefreshPolicy]:
    """Return the policy, or one with its limit counted from the last success."""
    limits = list(GiveUpSince) if policy.give_up_after is not None else [GiveUpSince.FIRST_FAILURE]
    return st.sampled_from([replace(policy, give_up_since=each) for each in limits])


POLICIES = st.builds(
    RefreshPolicy,
    schedule=st.sampled_from([DAILY, FEW]),
    timeout=st.sampled_from([MINUTE, HOUR, 5 * HOUR]),
    delays=st.lists(st.sampled_from([timedelta(0), MINUTE, HOUR, 9 * HOUR]), max_size=4).map(tuple),
    strategy=st.sampled_from(list(Strategy)),
    on_exhausted=st.sampled_from(list(Exhausted)),
    give_up_after=st.sampled_from([None, 3 * HOUR, timedelta(days=2)]),
    catch_up=st.sampled_from([None, HOUR]),
    jitter=st.sampled_from([timedelta(0), 5 * MINUTE]),
).flatmap(counted)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "start",
                "start",
                "start",
                "success",
                "failure",
                "failure",
                "sweep",
                "sweep",
                "trigger",
                "update",
                "pause",
                "resume",
                "replan",
                "final",
            ]
        ),
        st.sampled_from([timedelta(0), MINUTE, HOUR, 7 * HOUR, -MINUTE]),
        st.floats(0, 1),
    ),
    max_size=40,
)


def moved(policy: RefreshPolicy, state: RefreshState, event: str, now: datetime, **given: Any) -> RefreshTransition:
    """Return the transition for an event; results are those of the running attempt."""
    uid = state.attempt_uid or "none"
    new = f"u{state.attempts_since_success}-{now.isoformat()}"
    if event == "pause":
        return refresh.pause(state)
    how, more = {
        "start": (refresh.start, {"uid": new}),
        "trigger": (refresh.trigger, {"uid": new}),
        "success": (refresh.success, {"uid": uid}),
        "failure": (refresh.failure, {"uid": uid}),
        "final": (refresh.failure, {"uid": uid, "permanent": "the address is wrong"}),
        "sweep": (refresh.sweep, {}),
        "update": (refresh.update, {"at_once": False}),
        "resume": (refresh.resume, {}),
        "replan": (refresh.replan, {}),
    }[event]
    return how(policy, state, now=now, **more, **given)


@given(POLICIES, EVENTS)
@example(
    RefreshPolicy(schedule=DAILY, timeout=HOUR, delays=(timedelta(0),), strategy=Strategy.UNTIL_SUCCESS),
    [("start", 7 * HOUR, 0.0), ("start", MINUTE, 0.0), ("failure", HOUR, 0.0)],
)
def test_invariants_hold_in_every_history(policy: RefreshPolicy, events: list[tuple[str, timedelta, float]]):
    """Attempts grow by one at each start until something resets them; nothing is due while it is disabled, paused or
    running; a retry comes no earlier than its delay; and whatever waits has a time, a reason, or its end."""
    now, state = T0, RefreshState()
    for event, step, sample in [("update", timedelta(0), 0.0), *events]:
        now += step
        given_sample = {} if event == "pause" else {"sample": sample}
        before, move = state, moved(policy, state, event, now, **given_sample)
        state = move.state
        clock = now if before.started_at is None else max(now, before.started_at)

        if move.outcome is RefreshOutcome.STARTED:
            runs = before.deadline_at is not None and clock < before.deadline_at  # and is superseded
            assert (before.attempt_no + (not runs), clock) == (state.attempt_no, state.started_at)
            assert timedelta(0) <= state.lag <= refresh.TOLERANCE + policy.jitter
            assert (clock + policy.timeout, clock) == (state.deadline_at, max(clock, state.failing_since))
        else:
            assert state.attempt_no in {0, before.attempt_no}
        if move.outcome is RefreshOutcome.RETRY_SCHEDULED:
            delay = policy.delay(before.attempt_no)
            # What ends a little after the deadline was stopped at it.
            timed_out = event == "sweep" or timedelta(0) < clock - before.deadline_at <= refresh.TOLERANCE
            failed_at = before.deadline_at if timed_out else clock
            aligned = policy.strategy in {Strategy.WHICHEVER_FIRST, Strategy.ALIGN, Strategy.PLANNED_ONLY}
            assert aligned or state.refresh_at >= failed_at + delay
        if state.disabled_until_update:
            assert state.disabled_reason
            assert state.refresh_at is None
        if state.disabled_until_update or state.paused or state.attempt_uid:
            assert not refresh.is_due(state, now + timedelta(days=9999))
        assert (state.attempt_uid is None) == (state.deadline_at is None)
        assert state.refresh_at or state.disabled_until_update or state.completed or state.attempt_uid, (
            "it waits for nothing"
        )
        assert (RefreshEffect.DISABLE in move.effects) == (move.outcome is RefreshOutcome.GAVE_UP)


@given(POLICIES, st.timedeltas(timedelta(0), timedelta(days=30)))
def test_a_late_sweep_changes_nothing(policy: RefreshPolicy, late: timedelta):
    """Timeouts happen at their deadline, with the effect that was written at the start."""
    started = refresh.trigger(policy, RefreshState(), now=T0, uid="u1").state
    swept = refresh.sweep(policy, started, now=started.deadline_at + late)

    assert swept == refresh.sweep(policy, started, now=started.deadline_at)
    assert started.refresh_at == swept.state.refresh_at


def test_an_answer_with_another_token_changes_nothing():
    """Late, double and superseded answers are stale."""
    policy = RefreshPolicy(schedule=DAILY)
    first = refresh.trigger(policy, RefreshState(), now=T0, uid="u1").state
    second = refresh.trigger(policy, first, now=T0, uid="u2").state

    for how in (refresh.success, refresh.failure):
        assert RefreshTransition(second, RefreshOutcome.STALE) == how(policy, second, now=T0, uid="u1")


def test_a_hint_lengthens_a_delay_and_never_shortens_it():
    """Retries start after their delay or after the hint, whichever is later."""
    policy = RefreshPolicy(delays=(HOUR, HOUR))
    running = refresh.trigger(policy, RefreshState(), now=T0, uid="u1").state

    def retried(wanted: timedelta) -> datetime | None:
        return refresh.failure(policy, running, now=T0, uid="u1", retry_after=wanted).state.refresh_at

    assert [T0 + HOUR, T0 + 2 * HOUR] == [retried(MINUTE), retried(2 * HOUR)]


HOURLY = Schedule(rules=(RecurrenceRule.parse("FREQ=HOURLY"),))


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("delays", [(HOUR / 4,) * 2, ()])
def test_no_refresh_starts_before_the_end_of_a_hint(strategy: Strategy, delays: tuple[timedelta, ...]):
    """Planned refreshes before the end of a hint are skipped."""
    policy = RefreshPolicy(
        schedule=HOURLY, delays=delays, strategy=strategy, give_up_after=timedelta(days=7), timeout=MINUTE
    )
    running = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state
    after = refresh.failure(policy, running, now=T0 + MINUTE, uid="u", retry_after=5 * HOUR).state
    at_once = delays and strategy is not Strategy.PLANNED_ONLY

    assert T0 + (5 * HOUR + MINUTE if at_once else 6 * HOUR) == after.refresh_at


def test_a_hint_within_the_delay_changes_nothing():
    """It is a lower bound."""
    policy = RefreshPolicy(schedule=HOURLY, delays=(HOUR / 4,))
    running = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state

    assert refresh.failure(policy, running, now=T0, uid="u") == refresh.failure(
        policy, running, now=T0, uid="u", retry_after=MINUTE
    )


@pytest.mark.parametrize("delays", [(), (MINUTE, MINUTE)])
def test_a_limit_in_time_is_the_end_that_counts(delays: tuple[timedelta, ...]):
    """After the listed retries, a refresh with a limit waits for the next planned one until the limit has passed."""
    policy = RefreshPolicy(schedule=HOURLY, delays=delays, give_up_after=3 * HOUR, timeout=MINUTE)
    state, now, moves = RefreshState(), T0, []
    state = refresh.trigger(policy, state, now=now, uid="u").state
    while not state.disabled_until_update:
        moves.append(refresh.failure(policy, state, now=now, uid="u"))
        now = moves[-1].state.refresh_at
        state = refresh.start(policy, moves[-1].state, now=now, uid="u").state

    assert Exhausted.WAIT_NEXT is policy.on_exhausted
    assert [RefreshOutcome.WAITING_NEXT] * 3 == [each.outcome for each in moves if each.state.attempt_no == 0]
    assert (T0 + 3 * HOUR, "No successful refresh for too long") == (now, state.disabled_reason)


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": HOURLY},
        {"give_up_after": HOUR},
        {"schedule": HOURLY, "give_up_after": HOUR, "delays": (MINUTE,), "repeat_last": True},
        {"schedule": HOURLY, "give_up_after": HOUR, "on_exhausted": Exhausted.GIVE_UP},
    ],
)
def test_without_a_limit_or_a_schedule_exhausted_retries_are_the_end(fields: dict[str, Any]):
    """Exhausted retries end a refresh without a limit or a schedule, or if its policy requires that."""
    assert Exhausted.GIVE_UP is RefreshPolicy(**fields).on_exhausted


def test_the_end_of_the_schedule_is_a_reason_to_give_up():
    """It would wait for the next planned refresh, and there is none."""
    policy = RefreshPolicy(schedule=FEW, on_exhausted=Exhausted.WAIT_NEXT)
    state = refresh.trigger(policy, RefreshState(), now=T0 + timedelta(days=1), uid="u").state
    move = refresh.failure(policy, state, now=T0 + timedelta(days=1), uid="u")

    assert (RefreshOutcome.GAVE_UP, "No more refreshes are scheduled, and the last one failed after 1 attempt") == (
        move.outcome,
        move.state.disabled_reason,
    )


def test_a_lasting_failure_waits_for_the_next_planned_refresh():
    """A failure that would come again has no retry and is no reason to give up, if there is a next planned refresh."""
    planned = [RefreshPolicy(schedule=HOURLY, delays=(MINUTE,), on_exhausted=each) for each in Exhausted]
    moves = []
    for policy in (*planned, RefreshPolicy(delays=(MINUTE,))):
        state = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state
        moves.append(refresh.failure(policy, state, now=T0 + MINUTE, uid="u", lasting=True))

    waits, retries = RefreshOutcome.WAITING_NEXT, RefreshOutcome.RETRY_SCHEDULED
    assert [waits, waits, retries] == [move.outcome for move in moves]
    assert [T0 + HOUR, T0 + HOUR, T0 + 2 * MINUTE] == [move.state.refresh_at for move in moves]


def test_a_trigger_starts_what_is_paused_and_not_what_is_disabled():
    """Triggers start a paused refresh, and not one that was given up."""
    paused = refresh.pause(RefreshState()).state
    disabled = RefreshState(disabled_until_update=True, disabled_reason="no")

    assert RefreshOutcome.STARTED is refresh.trigger(RefreshPolicy(), paused, now=T0, uid="u").outcome
    assert RefreshOutcome.DISABLED is refresh.trigger(RefreshPolicy(), disabled, now=T0, uid="u").outcome


def test_a_retry_that_became_due_in_a_pause_is_made_after_it():
    """Planned refreshes of the pause are left out; a retry is owed."""
    policy = RefreshPolicy(schedule=DAILY, delays=(MINUTE,))
    running = refresh.trigger(policy, RefreshState(), now=T0, uid="u1").state
    failed = refresh.failure(policy, running, now=T0, uid="u1").state
    resumed = refresh.resume(policy, refresh.pause(failed).state, now=T0 + HOUR).state

    assert failed.refresh_at == resumed.refresh_at
    assert refresh.is_due(resumed, T0 + HOUR)


def test_the_last_refresh_that_was_missed_completes():
    """After the last occurrence of its schedule was missed, a refresh is completed."""
    policy = RefreshPolicy(schedule=FEW, catch_up=MINUTE)
    state = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    late = refresh.start(policy, state, now=T0 + timedelta(days=1), uid="u")

    assert (RefreshOutcome.COMPLETED, (RefreshEffect.MISSED,)) == (late.outcome, late.effects)


def test_a_start_on_demand_is_not_missed():
    """Updates start at once, however late the start is carried out."""
    policy = RefreshPolicy(schedule=DAILY, catch_up=MINUTE)
    state = refresh.update(policy, RefreshState(), now=T0).state

    assert RefreshOutcome.STARTED is refresh.start(policy, state, now=T0 + HOUR, uid="u").outcome


def test_jitter_delays_planned_refreshes_and_no_others():
    """Not all start at once; a retry keeps its time."""
    policy = RefreshPolicy(schedule=DAILY, jitter=HOUR, delays=(MINUTE,))
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False, sample=0.5).state
    running = refresh.trigger(policy, waiting, now=T0, uid="u", sample=0.5).state
    retried = refresh.failure(policy, running, now=T0, uid="u", sample=0.5).state

    assert [waiting.planned_at + HOUR / 2, T0 + MINUTE] == [waiting.refresh_at, retried.refresh_at]


def test_planned_refreshes_that_are_late_are_spread_once():
    """After a downtime all are late at one instant; each is put off by its sample, and starts then."""
    policy = RefreshPolicy(schedule=DAILY, jitter=HOUR)
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False, sample=0.5).state
    back = waiting.planned_at + 5 * HOUR
    late = refresh.start(policy, waiting, now=back, uid="u", sample=0.25)
    again = refresh.start(policy, late.state, now=back + 9 * HOUR, uid="u", sample=1.0)

    assert RefreshTransition(replace(waiting, refresh_at=back + HOUR / 4), RefreshOutcome.POSTPONED) == late
    assert RefreshOutcome.NOT_DUE is refresh.start(policy, late.state, now=back, uid="u").outcome
    assert RefreshOutcome.STARTED is again.outcome


def test_zero_jitter_starts_a_late_refresh_at_once():
    """Samples may be 0; the item is not put off for ever."""
    policy = RefreshPolicy(schedule=DAILY, jitter=HOUR)
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    back = waiting.planned_at + 2 * HOUR
    late = refresh.start(policy, waiting, now=back, uid="u").state

    assert RefreshOutcome.STARTED is refresh.start(policy, late, now=back, uid="u").outcome


def test_a_start_within_its_jitter_is_not_late():
    """Up to the last instant at which jitter may start it, and some time for a look, it starts."""
    policy = RefreshPolicy(schedule=DAILY, jitter=HOUR)
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False, sample=0.5).state
    latest = waiting.planned_at + HOUR

    assert RefreshOutcome.STARTED is refresh.start(policy, waiting, now=latest, uid="u").outcome
    assert RefreshOutcome.STARTED is refresh.start(policy, waiting, now=latest + refresh.TOLERANCE, uid="u").outcome
    assert RefreshOutcome.POSTPONED is refresh.start(policy, waiting, now=latest + 2 * MINUTE, uid="u").outcome


def test_without_jitter_a_late_refresh_starts_at_once():
    """Without jitter no late refresh is postponed."""
    policy = RefreshPolicy(schedule=DAILY)
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False).state

    assert RefreshOutcome.STARTED is refresh.start(policy, waiting, now=waiting.planned_at + 9 * HOUR, uid="u").outcome


def test_a_retry_that_is_late_and_a_start_on_demand_are_not_put_off():
    """They belong to one key, and not to all at once."""
    policy = RefreshPolicy(schedule=DAILY, jitter=MINUTE, delays=(HOUR,))
    wanted = refresh.update(policy, RefreshState(), now=T0).state
    running = refresh.trigger(policy, wanted, now=T0, uid="u").state
    failed = refresh.failure(policy, running, now=T0, uid="u").state

    for state in (wanted, failed):
        assert RefreshOutcome.STARTED is refresh.start(policy, state, now=T0 + 99 * HOUR, uid="v").outcome


def test_a_refresh_later_than_catch_up_is_skipped():
    """Late refreshes beyond ``catch_up`` are skipped, also those that were postponed."""
    policy = RefreshPolicy(schedule=DAILY, jitter=MINUTE, catch_up=HOUR)
    waiting = refresh.update(policy, RefreshState(), now=T0, at_once=False).state
    late = refresh.start(policy, waiting, now=waiting.planned_at + HOUR, uid="u", sample=1.0)

    assert RefreshOutcome.MISSED is refresh.start(policy, waiting, now=waiting.planned_at + 2 * HOUR, uid="u").outcome
    assert RefreshOutcome.POSTPONED is late.outcome
    assert (
        RefreshOutcome.MISSED
        is refresh.start(policy, late.state, now=late.state.refresh_at + 2 * HOUR, uid="u").outcome
    )


def test_a_sweep_of_a_pause_gives_nothing_up():
    """Sweeps give up no paused refresh."""
    policy = RefreshPolicy(schedule=DAILY, give_up_after=MINUTE, delays=(HOUR,))
    state = RefreshState(failing_since=T0, refresh_at=T0 + HOUR, attempt_no=1)

    assert RefreshOutcome.GAVE_UP is refresh.sweep(policy, state, now=T0 + HOUR).outcome
    assert RefreshOutcome.NOTHING is refresh.sweep(policy, replace(state, paused=True), now=T0 + HOUR).outcome


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timeout": timedelta(0)}, "the timeout must be positive"),
        ({"timeout": "0s"}, "the timeout must be positive"),
        ({"timeout": "an hour"}, "timeout: a duration cannot contain 'a' here"),
        ({"timeout": None}, "timeout: None is not a duration"),
        ({"delays": ("1m", "soon")}, "delays: a duration cannot contain 's' here"),
        ({"delays": "1m"}, "delays='1m': write a list of durations"),
        ({"delays": MINUTE}, "write a list of durations"),
        ({"delays": (-MINUTE,)}, "a span of time is negative"),
        ({"give_up_after": timedelta(0)}, "give_up_after=0:00:00"),
        ({"timeout": timedelta(weeks=6000)}, "longer than a hundred years: 42000 days"),
        ({"repeat_last": True}, "needs a delay to repeat"),
        ({"on_exhausted": Exhausted.WAIT_NEXT}, "there is no scheduled refresh to wait for"),
        (
            {"on_exhausted": Exhausted.WAIT_NEXT, "schedule": DAILY, "delays": (MINUTE,), "repeat_last": True},
            "never exhausted",
        ),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(fields: dict, message: str):
    """Errors name the field."""
    with pytest.raises(ScheduleError, match=message):
        RefreshPolicy(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("shout",), "no action 'shout'"),
        (("email",), "email needs a recipient: pass to="),
        (("mark", "banner"), "mark needs a text for banner: pass text="),
        (("disable", "customer"), "disable takes neither to= nor text="),
        (("panic", None, "help"), "panic takes neither to= nor text="),
        (("email", 5), "email: to=5 is not a text"),
        (("email", "ops", "\ud800"), "email: text='.*' is not a text that can be stored"),
    ],
)
def test_an_incomplete_action_is_refused(fields: tuple[str, ...], message: str):
    """Actions need a recipient, or a text for the mark."""
    with pytest.raises(ScheduleError, match=message):
        Action(*fields)


def test_spans_may_be_text_and_numbers():
    """Seconds and text mean the same as a timedelta, and are kept as one."""
    written = {"timeout": "1h", "delays": ["0s", 60, "5m"], "give_up_after": "7d", "catch_up": 90.0, "jitter": "30s"}
    minutes = (timedelta(0), MINUTE, 5 * MINUTE)
    same = RefreshPolicy(
        timeout=HOUR,
        delays=minutes,
        give_up_after=timedelta(days=7),
        catch_up=timedelta(seconds=90),
        jitter=timedelta(seconds=30),
    )
    assert same == RefreshPolicy(**written)
    assert hash(same) == hash(RefreshPolicy(**written))


def test_a_hint_may_be_text():
    """Hints are parsed like every duration."""
    policy = RefreshPolicy(delays=("1m",))
    started = refresh.trigger(policy, RefreshState(), now=T0, uid="u").state
    assert T0 + HOUR == refresh.failure(policy, started, now=T0, uid="u", retry_after="1h").state.refresh_at


NAIVE = T0.replace(tzinfo=None)
RUNNING = RefreshState(attempt_uid="u", deadline_at=T0, started_at=T0, attempt_no=1)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("now", lambda at: refresh.is_due(RefreshState(refresh_at=T0), at)),
        ("now", lambda at: refresh.start(RefreshPolicy(), RefreshState(), now=at, uid="u")),
        ("now", lambda at: refresh.trigger(RefreshPolicy(), RefreshState(), now=at, uid="u")),
        ("now", lambda at: refresh.success(RefreshPolicy(), RUNNING, now=at, uid="u")),
        ("now", lambda at: refresh.failure(RefreshPolicy(), RUNNING, now=at, uid="u")),
        ("now", lambda at: refresh.sweep(RefreshPolicy(), RUNNING, now=at)),
        ("now", lambda at: refresh.update(RefreshPolicy(), RefreshState(), now=at)),
        ("now", lambda at: refresh.resume(RefreshPolicy(), RefreshState(), now=at)),
        ("now", lambda at: refresh.replan(RefreshPolicy(), RefreshState(), now=at)),
        ("now", lambda at: RefreshPolicy(schedule=DAILY).lint(now=at)),
        ("at", DAILY.next),
        ("at", lambda at: next(DAILY.since(at))),
        ("after", lambda at: DAILY.next(T0, after=at)),
        ("since", lambda at: DAILY.last(at, T0)),
        ("until", lambda at: DAILY.last(T0, at)),
    ],
    ids=itertools.count(),
)
def test_an_instant_has_a_time_zone(name: str, call: Callable[[Any], object]):
    """Naive datetimes and other types are refused by an error that names the argument."""
    with pytest.raises(ScheduleError, match=rf"^{name}=datetime\.datetime\(2026, 3, 28, 12, 0\) has no time zone"):
        call(NAIVE)
    with pytest.raises(ScheduleError, match=f"^{name}='today' is not an instant"):
        call("today")


@pytest.mark.parametrize("sample", [5, -0.1, float("nan")])
def test_a_sample_lies_between_0_and_1(sample: float):
    """Another number would put starts off beyond the jitter."""
    policy = RefreshPolicy(schedule=DAILY, jitter=MINUTE)
    with pytest.raises(ScheduleError, match="a sample lies between 0 and 1"):
        refresh.update(policy, RefreshState(), now=T0, sample=sample)


def test_an_attempt_before_its_deadline_is_not_swept_and_a_disabled_refresh_not_started():
    """Both return the state as it was."""
    disabled = RefreshState(disabled_until_update=True, disabled_reason="no")
    swept = refresh.sweep(RefreshPolicy(), RUNNING, now=T0 - MINUTE)
    started = refresh.start(RefreshPolicy(), disabled, now=T0, uid="u")

    assert (RefreshOutcome.NOTHING, RUNNING) == (swept.outcome, swept.state)
    assert (RefreshOutcome.DISABLED, disabled) == (started.outcome, started.state)
