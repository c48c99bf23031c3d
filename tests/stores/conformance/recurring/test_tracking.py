"""What people want of things that are kept fresh: tracking, updates, triggers, pauses."""

from __future__ import annotations

import json

import pytest

from redrive.engine.lifecycle import State
from redrive.engine.outcome import Succeeded
from redrive.engine.records import AttemptOutcome
from redrive.engine.recurring import policy_document
from redrive.errors import IllegalMove, NotTracked, ScheduleError, StoreError
from redrive.schedule import RefreshOutcome, RefreshPolicy, Schedule
from redrive.stores.operations import audit, checks, jobs, schedules
from redrive.stores.operations.refresh import manage, read
from redrive.stores.operations.refresh.manage import NewItem
from redrive.stores.operations.refresh.read import Counts
from redrive.stores.operations.refresh.write import MoveResult
from tests.stores.helpers import T0, Harness, failed
from tests.stores.recurring import HALF, HOUR, MINUTE, Clockwork, cron, keeping, lucky

OWN = policy_document(RefreshPolicy(schedule=Schedule.cron("45 * * * *"), timeout=2 * MINUTE, delays=(MINUTE,)))
"""A policy of somebody's own."""


@pytest.fixture
def clockwork(store: Harness) -> Clockwork:
    """What recurs in a new store."""
    return Clockwork(store)


def sound(clockwork: Clockwork) -> bool:
    """Is nothing found by the invariant checker?"""
    return clockwork.do(checks.check()).findings == ()


# ------------------------------------------------------------------------------------------------------------- tracking


def test_a_new_thing_is_started_at_once(clockwork: Clockwork):
    """Where something is tracked its first attempt has a job when the call returns."""
    assert {"a"} == clockwork.track("a")
    (job,) = clockwork.jobs()
    thing = clockwork.thing()

    assert (job.id, T0, T0 + 10 * MINUTE) == (thing.job_id, thing.started_at, thing.deadline_at)
    assert (T0, None, clockwork.definition.timing) == (thing.tracked_at, thing.own, thing.timing)
    assert ("refresh:fresh/a", b'{"id":1}', b'{"id":1}') == (
        job.origin,
        clockwork.do(jobs.payload(job.id)),
        thing.payload,
    )
    assert sound(clockwork)


def test_a_new_thing_may_wait_for_its_schedule(clockwork: Clockwork):
    """With at_once=False the first attempt is the next planned refresh."""
    clockwork.track("a", at_once=False)

    assert (HALF, None, []) == (clockwork.state().refresh_at, clockwork.state().attempt_uid, clockwork.jobs())


def test_tracking_writes_what_no_worker_has_declared_yet(clockwork: Clockwork):
    """A web server may track something before a worker has ever started; what workers declare later counts."""
    clockwork.track("a")

    assert clockwork.definition == clockwork.schedule("fresh").definition


def test_what_the_database_has_counts(clockwork: Clockwork):
    """Where the code of a process is older than what was declared last, things are tracked by the newer one."""
    newer = keeping(schedule=Schedule.cron("45 * * * *"))
    clockwork.declare(newer)
    clockwork.track("a", at_once=False)

    assert newer == clockwork.schedule("fresh").definition
    assert (T0 + 45 * MINUTE, newer.timing) == (clockwork.state().refresh_at, clockwork.thing().timing)


def test_a_known_thing_gets_other_arguments(clockwork: Clockwork):
    """Who tracks a thing once more changes its arguments from its next attempt on, and starts nothing."""
    clockwork.track("a")
    before = clockwork.state()
    things = [NewItem("a", b'{"id":2}')]
    fresh = clockwork.do(manage.track(clockwork.definition, things, lucky(), now=clockwork.now))

    assert (frozenset(), before, b'{"id":2}') == (fresh, clockwork.state(), clockwork.thing().payload)
    assert 1 == len(clockwork.jobs())


def test_many_are_tracked_together(clockwork: Clockwork):
    """Of several things those that are new are told, and each of these has its own job."""
    clockwork.track("b")
    fresh = clockwork.track("a", "b", "c")

    assert {"a", "c"} == fresh
    assert {"refresh:fresh/a", "refresh:fresh/b", "refresh:fresh/c"} == {job.origin for job in clockwork.jobs()}
    assert {job.origin[-1:]: job.id for job in clockwork.jobs() if job.origin} == {
        key: clockwork.thing(key).job_id for key in "abc"
    }


def test_nothing_may_be_tracked(clockwork: Clockwork):
    """An empty list of things is no error, and makes nothing."""
    assert frozenset() == clockwork.track()
    assert [] == clockwork.jobs()


def test_a_key_that_is_there_twice_is_one_thing(clockwork: Clockwork):
    """Where a list names a key twice, the last arguments count, and one job is made."""
    things = [NewItem("a", b"1"), NewItem("a", b"2")]
    fresh = clockwork.do(manage.track(clockwork.definition, things, lucky(), now=clockwork.now))

    assert ({"a"}, b"2", 1) == (fresh, clockwork.thing().payload, len(clockwork.jobs()))


def test_keys_are_any_text(clockwork: Clockwork):
    """Slashes, colons, quotes and other alphabets are nothing special: the answer finds its thing."""
    key = "a/b:c'\"%_ \\ ключ"
    clockwork.track(key)
    clockwork.store.end(clockwork.store.take())

    assert HALF == clockwork.state(key).refresh_at


def test_jitter_is_drawn_for_each(store: Harness):
    """Things that are tracked together are spread over the jitter, each by its own luck."""
    clockwork = Clockwork(store, keeping(jitter=10 * MINUTE))
    things = [NewItem(key, b"{}") for key in "ab"]
    store.do(manage.track(clockwork.definition, things, iter([0.0, 0.5]), at_once=False, now=T0))

    assert [HALF, HALF + 5 * MINUTE] == [clockwork.state(key).refresh_at for key in "ab"]


@pytest.mark.parametrize("round_", range(3))
def test_of_two_that_track_a_thing_one_starts_it(shared: Harness, round_: int):
    """Processes that track the same things at the same time, in different orders, make one job of each."""
    clockwork = Clockwork(shared)
    keys = [f"k{number}" for number in range(10)]
    wanted = [[NewItem(key, b"{}") for key in order] for order in (keys, keys[::-1], keys[5:] + keys[:5])]
    answers = shared.at_once([manage.track(clockwork.definition, each, lucky(), now=T0) for each in wanted])

    assert keys == sorted(key for each in answers for key in each)
    assert 10 == len(clockwork.jobs())
    assert sound(clockwork)


# ------------------------------------------------------------------------------------------------ policies of their own


def test_a_thing_may_have_a_policy_of_its_own(clockwork: Clockwork):
    """Its schedule, its timeout and its retries are those of its own policy."""
    claim = clockwork.running(own=OWN)

    assert (OWN, T0 + 2 * MINUTE) == (clockwork.thing().own, clockwork.state().deadline_at)
    clockwork.store.end(claim, failed())
    assert T0 + MINUTE == clockwork.state().refresh_at


def test_the_timeout_of_its_own_policy_cuts_its_attempts_off(clockwork: Clockwork):
    """The job of such a thing has that timeout, so that its worker ends the attempt in time."""
    claim = clockwork.running(own=OWN)

    assert 2 * MINUTE == claim.policy.attempt_timeout


def test_a_policy_that_nobody_understands_is_refused(clockwork: Clockwork):
    """Nothing is tracked by a policy that cannot be read; the error says why."""
    with pytest.raises(ScheduleError, match="policy.version: 99 is not 1"):
        clockwork.track("a", own='{"version": 99}')
    with pytest.raises(NotTracked):
        clockwork.thing()


def test_another_policy_reckons_a_known_thing_anew(clockwork: Clockwork):
    """Who tracks a known thing by another policy moves its next planned refresh, and its later failures."""
    clockwork.track("a", at_once=False)
    clockwork.track("a", own=OWN)
    own = clockwork.state().refresh_at
    clockwork.track("a")

    assert (T0 + 45 * MINUTE, HALF) == (own, clockwork.state().refresh_at)
    assert None is clockwork.thing().own


# ----------------------------------------------------------------------------------------------------------- untracking


def test_what_is_untracked_is_gone(clockwork: Clockwork):
    """Nothing is left of a thing that is not tracked any more, and nothing of it is started."""
    clockwork.track("a", at_once=False)

    assert [True, False] == [clockwork.untrack(), clockwork.untrack()]
    clockwork.until(HALF)
    assert () == clockwork.start()
    with pytest.raises(NotTracked, match="fresh does not track an item with the key 'a'"):
        clockwork.thing()


def test_untracking_cancels_what_runs(clockwork: Clockwork):
    """The attempt of a thing that is not tracked any more is cancelled; its late answer changes nothing."""
    claim = clockwork.running()
    clockwork.untrack()
    job, (line,) = clockwork.store.job(claim.id), clockwork.store.history(claim.id)

    assert (State.CANCELLED, "its item is no longer tracked", AttemptOutcome.CANCELLED) == (
        job.state,
        job.note,
        line.outcome,
    )
    assert frozenset({claim.lease_id}) == clockwork.store.settle((claim, Succeeded())).lost
    assert sound(clockwork)


def test_what_is_tracked_again_is_new(clockwork: Clockwork):
    """A thing that comes back has forgotten its failures, and an answer of its former life does not reach it."""
    claim = clockwork.running()
    clockwork.untrack()
    clockwork.track("a")
    before = clockwork.state()
    clockwork.store.settle((claim, failed()))

    assert (1, before) == (before.attempts_since_success, clockwork.state())


def test_nothing_is_untracked_of_a_refresh_that_nobody_knows(clockwork: Clockwork):
    """Who untracks what never was is told that it was not."""
    assert not clockwork.untrack()


# -------------------------------------------------------------------------------------------------------------- updates


def test_an_update_enables_what_was_given_up(store: Harness):
    """After a person has changed the thing it starts at once, as if nothing had ever failed."""
    clockwork = Clockwork(store, keeping(delays=()))
    store.end(clockwork.running(), failed())
    store.wait(60)
    turned = clockwork.update()
    state = clockwork.state()

    assert MoveResult("a", RefreshOutcome.STARTED, int(state.attempt_uid or 0)) == turned
    assert (False, None, 1, 1, store.now) == (
        state.disabled_until_update,
        state.disabled_reason,
        state.attempt_no,
        state.attempts_since_success,
        state.failing_since,
    )
    assert sound(clockwork)


def test_an_update_may_wait_for_the_schedule(store: Harness):
    """With at_once=False the thing is enabled, and starts at its next planned refresh."""
    clockwork = Clockwork(store, keeping(delays=()))
    store.end(clockwork.running(), failed())
    turned = clockwork.update(at_once=False)

    assert (MoveResult("a", RefreshOutcome.ENABLED), HALF) == (turned, clockwork.state().refresh_at)


def test_an_update_cancels_what_runs(clockwork: Clockwork):
    """The running attempt refreshes what is not any more: it is cancelled, and another one begins."""
    first = clockwork.running()
    turned = clockwork.update()

    assert (State.CANCELLED, "its item was changed") == (
        clockwork.store.job(first.id).state,
        clockwork.store.job(first.id).note,
    )
    assert turned.job_id == clockwork.store.take().id != first.id
    assert sound(clockwork)


def test_a_superseded_attempt_changes_nothing(clockwork: Clockwork):
    """Success and failure of an attempt that another one has taken the place of are refused, whoever tells them."""
    first = clockwork.running()
    clockwork.update()
    before = clockwork.thing()

    for outcome in (Succeeded(), failed()):
        assert frozenset({first.lease_id}) == clockwork.store.settle((first, outcome)).lost
    assert before == clockwork.thing()


def test_an_update_of_what_is_paused_starts_nothing(clockwork: Clockwork):
    """A thing that is paused, or whose refresh is, is enabled and begins when that is over."""
    for key, paused in (("a", "a"), ("b", None)):
        clockwork.track(key, at_once=False)
        clockwork.pause(paused)
        turned = clockwork.update(key)
        clockwork.resume(paused)

        assert (RefreshOutcome.ENABLED, [MoveResult(key, RefreshOutcome.STARTED)]) == (
            turned.outcome,
            [MoveResult(each.key, each.outcome) for each in clockwork.start()],
        )


def test_updates_of_users_are_no_business_of_the_audit_log(clockwork: Clockwork):
    """What an operator does is recorded, and what the program does for its users is not."""
    clockwork.track("a")
    clockwork.update()
    clockwork.update(actor="ann")

    assert [("ann", "update")] == [(each.actor, each.action) for each in clockwork.do(audit.audit())]


# ------------------------------------------------------------------------------------------------------------- triggers


def test_a_trigger_starts_before_its_time(clockwork: Clockwork):
    """Who triggers a thing gets an attempt now; the audit log says who that was, and which job it made."""
    clockwork.track("a", at_once=False)
    turned = clockwork.do(manage.trigger("fresh", "a", 0.0, actor="ann", now=T0))
    (line,) = clockwork.do(audit.audit())

    assert (RefreshOutcome.STARTED, [turned.job_id]) == (turned.outcome, [job.id for job in clockwork.jobs()])
    assert {"schedule": "fresh", "key": "a", "ids": [turned.job_id]} == json.loads(line.details)


def test_a_trigger_supersedes_what_runs(clockwork: Clockwork):
    """The running attempt is cancelled, and the new one takes its number: no retry is spent."""
    first = clockwork.running()
    clockwork.trigger()

    assert State.CANCELLED is clockwork.store.job(first.id).state
    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert frozenset({first.lease_id}) == clockwork.store.settle((first, Succeeded())).lost
    assert sound(clockwork)


def test_what_was_given_up_is_not_triggered(store: Harness):
    """A thing that is disabled wants an update; a trigger changes nothing, and leaves no line."""
    clockwork = Clockwork(store, keeping(delays=()))
    store.end(clockwork.running(), failed())
    before = clockwork.thing()

    assert MoveResult("a", RefreshOutcome.DISABLED) == clockwork.trigger()
    assert (before, ()) == (clockwork.thing(), clockwork.do(audit.audit()))


def test_a_trigger_heeds_no_pause(clockwork: Clockwork):
    """A thing that is paused starts when somebody wants it now, and stays paused."""
    clockwork.track("a", at_once=False)
    clockwork.pause()

    assert RefreshOutcome.STARTED is clockwork.trigger().outcome
    assert clockwork.state().paused


@pytest.mark.parametrize("round_", range(3))
def test_of_many_triggers_at_once_the_last_one_runs(shared: Harness, round_: int):
    """Each makes a job; all but one of these are cancelled, and that one is the attempt of the thing."""
    clockwork = Clockwork(shared)
    clockwork.track("a")
    answers = shared.at_once([manage.trigger("fresh", "a", 0.0, now=T0) for _ in range(4)])
    going = [job.id for job in clockwork.jobs() if job.state is State.READY]

    assert [RefreshOutcome.STARTED] * 4 == [each.outcome for each in answers]
    assert ([clockwork.thing().job_id], 5) == (going, len(clockwork.jobs()))
    assert sound(clockwork)


# -------------------------------------------------------------------------------------------------------------- pausing


def test_what_is_paused_is_not_started(clockwork: Clockwork):
    """A thing that is paused is not due, and goes on at its next planned refresh when it is resumed."""
    clockwork.track("a", at_once=False)
    clockwork.pause()
    clockwork.until(HALF + MINUTE)
    paused = clockwork.start()
    clockwork.resume()

    assert ((), ()) == (paused, clockwork.start())
    assert HALF + HOUR == clockwork.state().refresh_at


def test_what_runs_may_finish_in_a_pause(clockwork: Clockwork):
    """The answer of an attempt counts while its thing is paused."""
    claim = clockwork.running()
    clockwork.pause()
    clockwork.store.end(claim)

    assert (HALF, True) == (clockwork.state().refresh_at, clockwork.state().paused)


def test_an_attempt_in_a_pause_is_overdue_like_any_other(clockwork: Clockwork):
    """A pause does not put a deadline off; the retry waits for the end of the pause."""
    clockwork.running()
    clockwork.pause()
    clockwork.until(HALF)
    clockwork.sweep()
    paused = clockwork.start()
    clockwork.resume()

    assert ((), [RefreshOutcome.STARTED]) == (paused, [each.outcome for each in clockwork.start()])
    assert 2 == clockwork.state().attempt_no


def test_a_pause_gives_nothing_up(store: Harness):
    """While a thing is paused nothing is given up, however long it has failed."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.pause()
    clockwork.until(T0 + 5 * HOUR)

    assert (None, 0) == (clockwork.thing().sweep_at, clockwork.sweep())


def test_a_refresh_that_is_paused_starts_nothing(clockwork: Clockwork):
    """While the whole refresh is paused no thing of it is started, and others are."""
    clockwork.track("a", at_once=False)
    other = Clockwork(clockwork.store, keeping(name="other"))
    other.track("a", at_once=False)
    clockwork.pause(None)
    clockwork.until(HALF)

    assert ((), 1) == (clockwork.start(), len(other.start()))


def test_what_was_planned_for_a_pause_of_all_is_left_out(clockwork: Clockwork):
    """When the refresh is resumed, things wait for their next planned refresh; what is planned for now is started."""
    clockwork.track("a", at_once=False)
    clockwork.pause(None)
    clockwork.until(HALF + MINUTE)
    clockwork.resume(None)
    (turned,) = clockwork.start()

    assert (MoveResult("a", RefreshOutcome.RESUMED), HALF + HOUR) == (turned, clockwork.state().refresh_at)
    clockwork.until(HALF + HOUR)
    assert [RefreshOutcome.STARTED] == [each.outcome for each in clockwork.start()]


def test_a_retry_that_became_due_in_a_pause_of_all_is_made(clockwork: Clockwork):
    """When the refresh is resumed, a retry that should have been made meanwhile is made."""
    clockwork.store.end(clockwork.running(), failed())
    clockwork.pause(None)
    clockwork.until(T0 + 20 * MINUTE)
    clockwork.resume(None)

    assert [RefreshOutcome.STARTED] == [each.outcome for each in clockwork.start()]
    assert 2 == clockwork.state().attempt_no


def test_what_somebody_wants_in_a_pause_is_done_after_it(clockwork: Clockwork):
    """A thing that is tracked while the refresh is paused starts when that is over: it was no planned refresh."""
    clockwork.declare(clockwork.definition)
    clockwork.pause(None)
    clockwork.track("a")
    waiting = clockwork.jobs()
    clockwork.store.wait(60)
    clockwork.resume(None)

    assert ([], [RefreshOutcome.STARTED]) == (waiting, [each.outcome for each in clockwork.start()])


# --------------------------------------------------------------------------------------------------------------- errors


def test_what_is_not_tracked_is_not_found(clockwork: Clockwork):
    """Whoever wants something of a thing that is not there is told which one that is."""
    clockwork.declare(clockwork.definition)
    for name, wants in {
        "update": clockwork.update,
        "trigger": clockwork.trigger,
        "pause": clockwork.pause,
        "resume": clockwork.resume,
        "get": clockwork.thing,
    }.items():
        with pytest.raises(NotTracked, match="fresh does not track an item with the key 'zzz'"):
            wants("zzz")
        assert [] == clockwork.jobs(), name


def test_a_refresh_without_things_is_not_found(clockwork: Clockwork):
    """Where nothing was ever tracked, that is said."""
    with pytest.raises(NotTracked, match="there is no refresh 'fresh', since nothing was ever tracked under it"):
        clockwork.update()


def test_a_cron_has_no_things(clockwork: Clockwork):
    """Who names a cron where a refresh is meant is told so."""
    clockwork.declare(cron())

    with pytest.raises(IllegalMove, match="'nightly' is a cron: it has no keys"):
        clockwork.do(manage.update("nightly", "a", 0.0))


def test_what_only_a_newer_redrive_can_read_is_not_touched(clockwork: Clockwork):
    """People are told that this redrive cannot do what they want."""
    claim = clockwork.running()
    clockwork.spoil_schedule()
    with pytest.raises(StoreError, match="'fresh' cannot be read by this redrive: a newer one may"):
        clockwork.update()

    assert State.RUNNING is clockwork.store.job(claim.id).state


def test_an_update_by_a_policy_that_means_nothing_is_undone(clockwork: Clockwork):
    """Where the own policy of a thing cannot be read, an update changes nothing: its attempt runs on."""
    claim = clockwork.running()
    clockwork.spoil_policy()
    with pytest.raises(ScheduleError, match="no JSON"):
        clockwork.update()

    assert State.RUNNING is clockwork.store.job(claim.id).state


# -------------------------------------------------------------------------------------------------------------- looking


def test_things_are_counted(store: Harness):
    """Each refresh tells how many things it has, and how many of them run, fail, are given up or paused."""
    clockwork = Clockwork(store, keeping(delays=(MINUTE,)))
    clockwork.track("runs", "fails", "retries", "over", "rests")
    claims = {claim.origin: claim for claim in store.claim(5)}
    fatal = failed("401", permanent="The password is wrong", reason="GAVE_UP")
    ends = {"fails": failed(), "retries": failed(), "over": fatal, "rests": Succeeded()}
    store.settle(*[(claims[f"refresh:fresh/{key}"], outcome) for key, outcome in ends.items()])
    clockwork.trigger("retries")
    clockwork.pause("rests")

    assert (Counts("fresh", tracked=5, running=2, failing=2, disabled=1, paused=1, completed=0),) == store.do(
        read.counts()
    )
    assert ["fails", "over", "retries"] == [each.key for each in store.do(read.select("fresh", troubled=True))]


def test_things_are_listed_by_their_keys(clockwork: Clockwork):
    """A page holds as many as were asked for, without their arguments, and the next one begins after it."""
    clockwork.track("c", "a", "b")
    page = clockwork.do(read.select("fresh", limit=2))
    rest = clockwork.do(read.select("fresh", after="b"))

    assert ["a", "b", "c"] == [each.key for each in (*page, *rest)]
    assert {None} == {each.payload for each in page}


def test_the_names_of_refreshes_part_their_things(clockwork: Clockwork):
    """Two refreshes may have things of one key, and an answer reaches the one that it is about."""
    other = Clockwork(clockwork.store, keeping(name="other"))
    clockwork.track("a")
    other.track("a", at_once=False)
    clockwork.store.end(clockwork.store.take(), failed())

    assert [1, 0] == [each.state().attempt_no for each in (clockwork, other)]
    assert ["fresh", "other"] == [each.name for each in clockwork.do(schedules.select())]
