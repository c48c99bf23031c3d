"""Operations on tracked items: track, update, trigger, pause."""

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
from redrive.stores.operations.refresh import items, manage
from redrive.stores.operations.refresh.items import Counts, ItemLoad, MoveResult
from redrive.stores.operations.refresh.manage import NewItem
from tests.stores.helpers import T0, Harness, failed
from tests.stores.recurring import HALF, HOUR, MINUTE, Clockwork, cron, keeping, samples

OWN = policy_document(RefreshPolicy(schedule=Schedule.cron("45 * * * *"), timeout=2 * MINUTE, delays=(MINUTE,)))
"""A policy of an item's own."""


@pytest.fixture
def clockwork(store: Harness) -> Clockwork:
    """Return a helper for schedules in a new store."""
    return Clockwork(store)


def sound(clockwork: Clockwork) -> bool:
    """Return True if the invariant checker finds no error."""
    return clockwork.do(checks.check()).findings == ()


# ------------------------------------------------------------------------------------------------------------- tracking


def test_a_new_item_is_started_at_once(clockwork: Clockwork):
    """Tracking a new item creates the job of its first attempt before the call returns."""
    assert {"a"} == clockwork.track("a")
    (job,) = clockwork.jobs()
    item = clockwork.item()

    assert (job.id, T0, T0 + 10 * MINUTE) == (item.job_id, item.started_at, item.deadline_at)
    assert (T0, None, clockwork.definition.timing) == (item.tracked_at, item.own, item.timing)
    assert ("refresh:fresh/a", b'{"id":1}', b'{"id":1}') == (
        job.origin,
        clockwork.do(jobs.documents({job.id: None}))[job.id].payload,
        item.payload,
    )
    assert sound(clockwork)


def test_a_new_item_may_wait_for_its_schedule(clockwork: Clockwork):
    """With at_once=False the first attempt is the next planned refresh."""
    clockwork.track("a", at_once=False)

    assert (HALF, None, []) == (clockwork.state().refresh_at, clockwork.state().attempt_uid, clockwork.jobs())


def test_tracking_writes_an_undeclared_refresh(clockwork: Clockwork):
    """Web servers may track items before a worker has started; later declarations of workers replace theirs."""
    clockwork.track("a")

    assert clockwork.definition == clockwork.schedule("fresh").definition


def test_the_declaration_in_the_database_counts(clockwork: Clockwork):
    """If a process runs older code, items are tracked by the newer declaration in the database."""
    newer = keeping(schedule=Schedule.cron("45 * * * *"))
    clockwork.declare(newer)
    clockwork.track("a", at_once=False)

    assert newer == clockwork.schedule("fresh").definition
    assert (T0 + 45 * MINUTE, newer.timing) == (clockwork.state().refresh_at, clockwork.item().timing)


def test_tracking_a_tracked_item_changes_its_arguments(clockwork: Clockwork):
    """Tracking a known item changes the arguments of its next attempts and starts nothing."""
    clockwork.track("a")
    before = clockwork.state()
    items = [NewItem("a", b'{"id":2}')]
    fresh = clockwork.do(manage.track(clockwork.definition, items, samples(), now=clockwork.now))

    assert (frozenset(), before, b'{"id":2}') == (fresh, clockwork.state(), clockwork.item().payload)
    assert 1 == len(clockwork.jobs())


def test_many_are_tracked_together(clockwork: Clockwork):
    """Tracking several items returns the new ones, and each of these has its own job."""
    clockwork.track("b")
    fresh = clockwork.track("a", "b", "c")

    assert {"a", "c"} == fresh
    assert {"refresh:fresh/a", "refresh:fresh/b", "refresh:fresh/c"} == {job.origin for job in clockwork.jobs()}
    assert {job.origin[-1:]: job.id for job in clockwork.jobs() if job.origin} == {
        key: clockwork.item(key).job_id for key in "abc"
    }


def test_an_empty_list_of_items_is_allowed(clockwork: Clockwork):
    """Tracking an empty list creates nothing and is no error."""
    assert frozenset() == clockwork.track()
    assert [] == clockwork.jobs()


def test_a_repeated_key_is_one_item(clockwork: Clockwork):
    """If a list names a key twice, the last arguments count, and one job is created."""
    items = [NewItem("a", b"1"), NewItem("a", b"2")]
    fresh = clockwork.do(manage.track(clockwork.definition, items, samples(), now=clockwork.now))

    assert ({"a"}, b"2", 1) == (fresh, clockwork.item().payload, len(clockwork.jobs()))


def test_keys_are_any_text(clockwork: Clockwork):
    """Keys may contain slashes, colons, quotes and any alphabet; the answer still finds its item."""
    key = "a/b:c'\"%_ \\ ключ"
    clockwork.track(key)
    clockwork.store.end(clockwork.store.take())

    assert HALF == clockwork.state(key).refresh_at


def test_jitter_is_drawn_for_each(store: Harness):
    """Items that are tracked together are spread over the jitter, each by its own sample."""
    clockwork = Clockwork(store, keeping(jitter=10 * MINUTE))
    items = [NewItem(key, b"{}") for key in "ab"]
    store.do(manage.track(clockwork.definition, items, iter([0.0, 0.5]), at_once=False, now=T0))

    assert [HALF, HALF + 5 * MINUTE] == [clockwork.state(key).refresh_at for key in "ab"]


@pytest.mark.parametrize("round_", range(3))
def test_concurrent_tracking_starts_an_item_once(shared: Harness, round_: int):
    """Processes that track the same items concurrently in different orders create one job for each."""
    clockwork = Clockwork(shared)
    keys = [f"k{number}" for number in range(10)]
    wanted = [[NewItem(key, b"{}") for key in order] for order in (keys, keys[::-1], keys[5:] + keys[:5])]
    answers = shared.at_once([manage.track(clockwork.definition, each, samples(), now=T0) for each in wanted])

    assert keys == sorted(key for each in answers for key in each)
    assert 10 == len(clockwork.jobs())
    assert sound(clockwork)


# ------------------------------------------------------------------------------------------------ policies of their own


def test_an_item_may_have_a_policy_of_its_own(clockwork: Clockwork):
    """Items with their own policy follow its schedule, timeout and retries."""
    claim = clockwork.running(own=OWN)

    assert (OWN, T0 + 2 * MINUTE) == (clockwork.item().own, clockwork.state().deadline_at)
    clockwork.store.end(claim, failed())
    assert T0 + MINUTE == clockwork.state().refresh_at


def test_the_timeout_of_its_own_policy_cuts_its_attempts_off(clockwork: Clockwork):
    """Jobs of an item with its own policy have that policy's timeout, so that the worker enforces it."""
    claim = clockwork.running(own=OWN)

    assert 2 * MINUTE == claim.policy.attempt_timeout


def test_an_unreadable_policy_is_refused(clockwork: Clockwork):
    """Tracking with an unreadable policy is refused with the reason."""
    with pytest.raises(ScheduleError, match="policy.version: 99 is not 1"):
        clockwork.track("a", own='{"version": 99}')
    with pytest.raises(NotTracked):
        clockwork.item()


def test_another_policy_replans_a_tracked_item(clockwork: Clockwork):
    """Tracking a known item with another policy replans its next refresh and applies to its later failures."""
    clockwork.track("a", at_once=False)
    clockwork.track("a", own=OWN)
    own = clockwork.state().refresh_at
    clockwork.track("a")

    assert (T0 + 45 * MINUTE, HALF) == (own, clockwork.state().refresh_at)
    assert None is clockwork.item().own


# ----------------------------------------------------------------------------------------------------------- untracking


def test_an_untracked_item_is_deleted(clockwork: Clockwork):
    """Untracking deletes the item, and it is not started again."""
    clockwork.track("a", at_once=False)

    assert [True, False] == [clockwork.untrack(), clockwork.untrack()]
    clockwork.until(HALF)
    assert () == clockwork.start()
    with pytest.raises(NotTracked, match="fresh does not track an item with the key 'a'"):
        clockwork.item()


def test_untracking_cancels_a_running_attempt(clockwork: Clockwork):
    """Untracking cancels the open attempt; its late answer changes nothing."""
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


def test_an_item_that_is_tracked_again_is_new(clockwork: Clockwork):
    """Items that are tracked again start without failures; answers to former attempts do not reach them."""
    claim = clockwork.running()
    clockwork.untrack()
    clockwork.track("a")
    before = clockwork.state()
    clockwork.store.settle((claim, failed()))

    assert (1, before) == (before.attempts_since_success, clockwork.state())


def test_untracking_items_of_an_unknown_refresh_reports_none(clockwork: Clockwork):
    """Untracking items of an unknown refresh reports that they were not tracked."""
    assert not clockwork.untrack()


# -------------------------------------------------------------------------------------------------------------- updates


def test_an_update_enables_a_disabled_item(store: Harness):
    """Updating a disabled item starts it at once and resets its failures."""
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
    """With at_once=False the item is enabled and starts at its next planned refresh."""
    clockwork = Clockwork(store, keeping(delays=()))
    store.end(clockwork.running(), failed())
    turned = clockwork.update(at_once=False)

    assert (MoveResult("a", RefreshOutcome.ENABLED), HALF) == (turned, clockwork.state().refresh_at)


def test_an_update_cancels_a_running_attempt(clockwork: Clockwork):
    """Updating cancels the open attempt, which has outdated arguments, and starts another one."""
    first = clockwork.running()
    turned = clockwork.update()

    assert (State.CANCELLED, "its item was changed") == (
        clockwork.store.job(first.id).state,
        clockwork.store.job(first.id).note,
    )
    assert turned.job_id == clockwork.store.take().id != first.id
    assert sound(clockwork)


def test_a_superseded_attempt_changes_nothing(clockwork: Clockwork):
    """Successes and failures of a superseded attempt are refused."""
    first = clockwork.running()
    clockwork.update()
    before = clockwork.item()

    for outcome in (Succeeded(), failed()):
        assert frozenset({first.lease_id}) == clockwork.store.settle((first, outcome)).lost
    assert before == clockwork.item()


def test_an_update_of_a_paused_item_starts_nothing(clockwork: Clockwork):
    """Updating a paused item, or one of a paused refresh, enables it; it starts after the pause."""
    for key, paused in (("a", "a"), ("b", None)):
        clockwork.track(key, at_once=False)
        clockwork.pause(paused)
        turned = clockwork.update(key)
        clockwork.resume(paused)

        assert (RefreshOutcome.ENABLED, [MoveResult(key, RefreshOutcome.STARTED)]) == (
            turned.outcome,
            [MoveResult(each.key, each.outcome) for each in clockwork.start()],
        )


def test_updates_of_users_are_not_audited(clockwork: Clockwork):
    """Operators' actions are recorded in the audit log, the program's own updates are not."""
    clockwork.track("a")
    clockwork.update()
    clockwork.update(actor="ann")

    assert [("ann", "update")] == [(each.actor, each.action) for each in clockwork.do(audit.audit())]


# ------------------------------------------------------------------------------------------------------------- triggers


def test_a_trigger_starts_before_its_time(clockwork: Clockwork):
    """Triggering an item starts an attempt at once; the audit log records the actor and the job."""
    clockwork.track("a", at_once=False)
    turned = clockwork.do(manage.trigger("fresh", "a", 0.0, actor="ann", now=T0))
    (line,) = clockwork.do(audit.audit())

    assert (RefreshOutcome.STARTED, [turned.job_id]) == (turned.outcome, [job.id for job in clockwork.jobs()])
    assert {"schedule": "fresh", "key": "a", "ids": [turned.job_id]} == json.loads(line.details)


def test_a_trigger_supersedes_a_running_attempt(clockwork: Clockwork):
    """Triggering cancels the open attempt; the new one takes its number and spends no retry."""
    first = clockwork.running()
    clockwork.trigger()

    assert State.CANCELLED is clockwork.store.job(first.id).state
    assert (1, 1) == (clockwork.state().attempt_no, clockwork.state().attempts_since_success)
    assert frozenset({first.lease_id}) == clockwork.store.settle((first, Succeeded())).lost
    assert sound(clockwork)


def test_a_disabled_item_is_not_triggered(store: Harness):
    """Triggering a disabled item changes nothing and writes no audit line; it needs an update."""
    clockwork = Clockwork(store, keeping(delays=()))
    store.end(clockwork.running(), failed())
    before = clockwork.item()

    assert MoveResult("a", RefreshOutcome.DISABLED) == clockwork.trigger()
    assert (before, ()) == (clockwork.item(), clockwork.do(audit.audit()))


def test_a_trigger_ignores_a_pause(clockwork: Clockwork):
    """Triggering a paused item starts an attempt, and the item stays paused."""
    clockwork.track("a", at_once=False)
    clockwork.pause()

    assert RefreshOutcome.STARTED is clockwork.trigger().outcome
    assert clockwork.state().paused


@pytest.mark.parametrize("round_", range(3))
def test_only_one_of_concurrent_triggers_runs(shared: Harness, round_: int):
    """Concurrent triggers each create a job; all but one are cancelled, and that one is the item's attempt."""
    clockwork = Clockwork(shared)
    clockwork.track("a")
    answers = shared.at_once([manage.trigger("fresh", "a", 0.0, now=T0) for _ in range(4)])
    going = [job.id for job in clockwork.jobs() if job.state is State.READY]

    assert [RefreshOutcome.STARTED] * 4 == [each.outcome for each in answers]
    assert ([clockwork.item().job_id], 5) == (going, len(clockwork.jobs()))
    assert sound(clockwork)


# -------------------------------------------------------------------------------------------------------------- pausing


def test_paused_items_are_not_started(clockwork: Clockwork):
    """Paused items are not due, and resumed ones continue at their next planned refresh."""
    clockwork.track("a", at_once=False)
    clockwork.pause()
    clockwork.until(HALF + MINUTE)
    paused = clockwork.start()
    clockwork.resume()

    assert ((), ()) == (paused, clockwork.start())
    assert HALF + HOUR == clockwork.state().refresh_at


def test_running_attempts_may_finish_in_a_pause(clockwork: Clockwork):
    """Answers to an open attempt count while its item is paused."""
    claim = clockwork.running()
    clockwork.pause()
    clockwork.store.end(claim)

    assert (HALF, True) == (clockwork.state().refresh_at, clockwork.state().paused)


def test_an_attempt_in_a_pause_is_overdue_like_any_other(clockwork: Clockwork):
    """Deadlines of attempts hold during a pause; the retry waits for its end."""
    clockwork.running()
    clockwork.pause()
    clockwork.until(HALF)
    clockwork.sweep()
    paused = clockwork.start()
    clockwork.resume()

    assert ((), [RefreshOutcome.STARTED]) == (paused, [each.outcome for each in clockwork.start()])
    assert 2 == clockwork.state().attempt_no


def test_a_pause_gives_nothing_up(store: Harness):
    """Items that are paused are not disabled, however long they have failed."""
    clockwork = Clockwork(store, keeping(give_up_after=HOUR))
    store.end(clockwork.running(), failed())
    clockwork.pause()
    clockwork.until(T0 + 5 * HOUR)

    assert (None, 0) == (clockwork.item().sweep_at, clockwork.sweep())


def test_a_refresh_that_is_paused_starts_nothing(clockwork: Clockwork):
    """While a refresh is paused, its items are not started, and those of other refreshes are."""
    clockwork.track("a", at_once=False)
    other = Clockwork(clockwork.store, keeping(name="other"))
    other.track("a", at_once=False)
    clockwork.pause(None)
    clockwork.until(HALF)

    assert ((), 1) == (clockwork.start(), len(other.start()))


def test_resuming_a_refresh_skips_starts_planned_in_the_pause(clockwork: Clockwork):
    """Resuming a refresh skips the refreshes planned during the pause; those planned for now start."""
    clockwork.track("a", at_once=False)
    clockwork.pause(None)
    clockwork.until(HALF + MINUTE)
    clockwork.resume(None)
    (turned,) = clockwork.start()

    assert (MoveResult("a", RefreshOutcome.RESUMED), HALF + HOUR) == (turned, clockwork.state().refresh_at)
    clockwork.until(HALF + HOUR)
    assert [RefreshOutcome.STARTED] == [each.outcome for each in clockwork.start()]


def test_resuming_a_refresh_starts_retries_due_in_the_pause(clockwork: Clockwork):
    """Resuming a refresh starts the retries that became due during the pause."""
    clockwork.store.end(clockwork.running(), failed())
    clockwork.pause(None)
    clockwork.until(T0 + 20 * MINUTE)
    clockwork.resume(None)

    assert [RefreshOutcome.STARTED] == [each.outcome for each in clockwork.start()]
    assert 2 == clockwork.state().attempt_no


def test_an_item_tracked_in_a_pause_starts_after_it(clockwork: Clockwork):
    """Items tracked while the refresh is paused start after the pause: theirs is no planned refresh."""
    clockwork.declare(clockwork.definition)
    clockwork.pause(None)
    clockwork.track("a")
    waiting = clockwork.jobs()
    clockwork.store.wait(60)
    clockwork.resume(None)

    assert ([], [RefreshOutcome.STARTED]) == (waiting, [each.outcome for each in clockwork.start()])


# --------------------------------------------------------------------------------------------------------------- errors


def test_an_item_that_is_not_tracked_is_not_found(clockwork: Clockwork):
    """Operations on an item that is not tracked raise an error with its key."""
    clockwork.declare(clockwork.definition)
    for name, wants in {
        "update": clockwork.update,
        "trigger": clockwork.trigger,
        "pause": clockwork.pause,
        "resume": clockwork.resume,
        "get": clockwork.item,
    }.items():
        with pytest.raises(NotTracked, match="fresh does not track an item with the key 'zzz'"):
            wants("zzz")
        assert [] == clockwork.jobs(), name


def test_a_refresh_without_items_is_not_found(clockwork: Clockwork):
    """Operations on a refresh without items raise an error."""
    with pytest.raises(NotTracked, match="there is no refresh 'fresh', or it has never had an item"):
        clockwork.update()


def test_a_cron_has_no_items(clockwork: Clockwork):
    """Naming a cron instead of a refresh raises an error."""
    clockwork.declare(cron())

    with pytest.raises(IllegalMove, match="'nightly' is a cron: it has no keys"):
        clockwork.do(manage.update("nightly", "a", 0.0))


def test_operations_on_a_refresh_of_a_newer_redrive_are_refused(clockwork: Clockwork):
    """Operations on a refresh that needs a newer redrive raise an error."""
    claim = clockwork.running()
    clockwork.spoil_schedule()
    with pytest.raises(StoreError, match="'fresh' cannot be read by this redrive: a newer one may"):
        clockwork.update()

    assert State.RUNNING is clockwork.store.job(claim.id).state


def test_an_update_under_an_unreadable_policy_is_rolled_back(clockwork: Clockwork):
    """If an item's own policy is unreadable, an update is rolled back and its attempt continues."""
    claim = clockwork.running()
    clockwork.spoil_policy()
    with pytest.raises(ScheduleError, match="not JSON"):
        clockwork.update()

    assert State.RUNNING is clockwork.store.job(claim.id).state


# -------------------------------------------------------------------------------------------------------------- reading


def test_items_are_counted(store: Harness):
    """Counts of a refresh include all, running, failing, disabled and paused items."""
    clockwork = Clockwork(store, keeping(delays=(MINUTE,)))
    clockwork.track("runs", "fails", "retries", "over", "rests")
    claims = {claim.origin: claim for claim in store.claim(5)}
    fatal = failed("401", permanent="The password is wrong", reason="GAVE_UP")
    ends = {"fails": failed(), "retries": failed(), "over": fatal, "rests": Succeeded()}
    store.settle(*[(claims[f"refresh:fresh/{key}"], outcome) for key, outcome in ends.items()])
    clockwork.trigger("retries")
    clockwork.pause("rests")

    assert (Counts("fresh", tracked=5, running=2, failing=2, disabled=1, paused=1, completed=0),) == store.do(
        items.counts()
    )
    assert ["fails", "over", "retries"] == [each.key for each in store.do(items.select("fresh", troubled=True))]
    assert (ItemLoad("fresh", tracked=5, troubled=3),) == store.do(items.loads(10))
    assert (ItemLoad("fresh", tracked=2, troubled=2),) == store.do(items.loads(2))


def test_items_are_listed_by_their_keys(clockwork: Clockwork):
    """Pages of items hold the given number without arguments; the next page begins after the last key."""
    clockwork.track("c", "a", "b")
    page = clockwork.do(items.select("fresh", limit=2))
    rest = clockwork.do(items.select("fresh", after="b"))

    assert ["a", "b", "c"] == [each.key for each in (*page, *rest)]
    assert {None} == {each.payload for each in page}


def test_items_of_two_refreshes_may_share_a_key(clockwork: Clockwork):
    """Items of two refreshes may have the same key; an answer reaches the item of its own refresh."""
    other = Clockwork(clockwork.store, keeping(name="other"))
    clockwork.track("a")
    other.track("a", at_once=False)
    clockwork.store.end(clockwork.store.take(), failed())

    assert [1, 0] == [each.state().attempt_no for each in (clockwork, other)]
    assert ["fresh", "other"] == [each.name for each in clockwork.do(schedules.select())]
