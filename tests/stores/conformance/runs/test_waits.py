"""Signals, emitted values and child runs: no wake-up is lost, senders lock no run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.engine.lifecycle import State
from redrive.engine.records import Hold
from redrive.engine.runs import RunFlags, StepOutcome
from redrive.errors import ConfigurationError, IllegalMove, RunNotFound
from redrive.stores.operations import leases
from redrive.stores.operations import managing_runs as manage
from redrive.stores.operations.runs import waits
from redrive.stores.operations.runs.steps import UNREAD
from tests.stores.helpers import FATAL, T0, Harness, seconds
from tests.stores.runs import (
    begin,
    begun,
    call,
    claimed,
    event,
    park,
    record,
    run,
    signal,
    step,
    timeline,
    view,
    wait,
    wake,
)


def emit(store: Harness, name: str = "open", payload: bytes | None = b"1", **how: timedelta) -> bool:
    """Emit a value."""
    return store.do(waits.emit(name, payload, now=store.now, **how))


# ------------------------------------------------------------------------------------------------------------- signals


def test_a_signal_wakes_the_run_that_waits_for_it(store: Harness):
    """Parked runs that wait for a signal are due when it was offered, and their claim answers it."""
    claim = begun(store)
    park(store, claim, wait())
    number = signal(store, payload=b'{"parcel":7}')

    assert frozenset({claim.id}) == wake(store)
    _, state = claimed(store)
    assert [(number, "shipped", b'{"parcel":7}', None)] == [
        (each.id, each.name, each.payload, each.path) for each in state.signals
    ]


def test_a_signal_is_kept_until_the_run_waits_for_it(store: Harness):
    """Signals before the wait, also before the first claim, make the run due as soon as it parks."""
    begin(store)
    signal(store)
    claim, state = claimed(store)
    wake(store)
    park(store, claim, wait())

    assert 1 == len(state.signals)
    assert T0 == view(store).job.scheduled_at
    assert 1 == len(claimed(store)[1].signals)


def test_a_signal_of_another_name_wakes_no_run(store: Harness):
    """Runs stay parked while signals of other names arrive, which stay unread and are offered once."""
    park(store, begun(store), wait())
    signal(store, "returned")

    assert store.do(waits.is_pending())
    assert frozenset() == wake(store)
    assert not store.do(waits.is_pending())
    assert [None] == [each.path for each in timeline(store).signals]
    assert () == store.claim()


def test_a_signal_of_a_running_run_stays_pending(store: Harness):
    """Signals that arrive while their run runs are offered again after it was parked."""
    claim = begun(store)
    signal(store)

    assert frozenset() == wake(store)
    assert store.do(waits.is_pending())
    park(store, claim, wait())
    assert T0 == view(store).job.scheduled_at


def test_signals_are_read_in_their_order_and_once(store: Harness):
    """Runs read the signals of one name in the order in which they were sent, each by one step."""
    claim = begun(store)
    first, second = signal(store, payload=b"1"), signal(store, payload=b"2")
    answered = replace(wait("1"), outcome=StepOutcome.OK, result=b"1", ref=first)
    record(store, claim, answered)
    park(store, claim, wait("2", timeout=60))
    _, state = claimed(store)

    assert first < second
    assert [second] == [each.id for each in state.signals]
    assert [("1", first), (None, second)] == [(each.path, each.id) for each in timeline(store).signals]


def test_a_claim_reads_the_first_unread_signals(store: Harness):
    """Claims and news have so many unread signals of a run at most; those of one name are read behind them."""
    claim = begun(store)
    first = [signal(store, "returned") for _ in range(UNREAD)]
    last = [signal(store) for _ in range(3)]
    news = store.do(waits.news([claim.id], now=store.now))[claim.id]
    park(store, claim, wait())
    again, state = claimed(store)

    assert first == [each.id for each in state.signals]
    assert first == [each.id for each in news.arrived[0]]
    assert last == [each.id for each in store.do(waits.unread(again.id, "shipped"))]
    assert () == store.do(waits.unread(again.id, "lost"))


def test_a_wait_that_timed_out_leaves_later_signals_unread(store: Harness):
    """Timeouts are recorded; a signal that comes later stays unread."""
    claim = begun(store)
    park(store, claim, wait(timeout=60))
    store.wait(61)
    again, _ = claimed(store)
    record(store, again, replace(wait(), outcome=StepOutcome.TIMED_OUT))
    signal(store)
    park(store, again, wait("2", "other"))
    wake(store)

    assert [None] == [each.path for each in timeline(store).signals]
    assert StepOutcome.TIMED_OUT is timeline(store).steps[0].outcome
    assert () == store.claim()


def test_a_signal_with_a_key_is_sent_once(store: Harness):
    """Signals of one run and name with equal keys are one signal, with the first payload."""
    begin(store, run(), run("order-43"))
    first = signal(store, key="dhl-981", payload=b"1")

    assert first is not None
    assert signal(store, key="dhl-981", payload=b"2") is None
    assert None not in (signal(store, "other", key="dhl-981"), signal(store, key="dhl-981", id="order-43"))
    assert [b"1", b"7"] == [each.payload for each in timeline(store).signals]


@pytest.mark.parametrize(
    ("name", "text"), [("", "a text, not empty"), (None, "a text, not empty"), (":child", "reserved")]
)
def test_a_signal_needs_a_name(store: Harness, name: str, text: str):
    """Signals without a name, and with a reserved one, are refused."""
    begin(store)

    with pytest.raises(ConfigurationError, match=text):
        signal(store, name)
    with pytest.raises(ConfigurationError, match=text):
        emit(store, name)


def test_a_signal_needs_a_run_that_goes_on(store: Harness):
    """Signals to unknown and to ended runs are refused."""
    with pytest.raises(RunNotFound, match="checkout has no run 'order-42'"):
        signal(store)
    store.end(begun(store))
    with pytest.raises(IllegalMove, match="run 'order-42' of checkout is succeeded: it receives no signal"):
        signal(store)


def test_the_budget_of_a_wake_limits_its_signals(store: Harness):
    """Wakes offer a limited number of signals, and answer that more may be pending."""
    begin(store, run("a"), run("b"))
    for claim in store.claim(2):
        park(store, claim, wait())
    signal(store, id="a")
    signal(store, id="b")
    first = store.do(waits.wake(budget=1, now=store.now))
    second = store.do(waits.wake(budget=2, now=store.now))

    assert [1, 1] == [len(first.runs), len(second.runs)]
    assert (True, False) == (first.more, second.more)


# ------------------------------------------------------------------------------------------------------ emitted values


def test_the_first_emitted_value_wakes_all_that_wait(store: Harness):
    """Emitted values wake every run that waits for the name; a second value is refused."""
    begin(store, run("a"), run("b"), run("c"))
    a, b, c = store.claim(3)
    park(store, a, event())
    park(store, b, event())
    park(store, c, event("1", "closed"))
    answers = [emit(store), emit(store, payload=b"2")]

    assert [True, False] == answers
    assert frozenset({a.id, b.id}) == wake(store)
    states = store.claimed(9).runs.values()
    assert [[("open", b"1", T0)]] * 2 == [[(each.name, each.payload, each.at) for each in s.emits] for s in states]


def test_a_value_is_there_for_runs_that_wait_later(store: Harness):
    """Runs that begin to wait for a value that was emitted before are due at once."""
    emit(store)
    while store.do(waits.is_pending()):
        wake(store)
    park(store, begun(store), event())

    assert T0 == view(store).job.scheduled_at
    assert [b"1"] == [each.payload for each in claimed(store)[1].emits]


def test_emitted_values_are_offered_in_the_end(store: Harness):
    """Values do not stay pending, so that later wakes have nothing to do."""
    emit(store)
    passes = 0
    while store.do(waits.is_pending()) and passes < 9:
        wake(store)
        passes += 1

    assert passes < 9


def test_the_budget_of_a_wake_limits_its_runs(store: Harness):
    """Wakes for an emitted value wake a limited number of runs; the value stays pending for the others."""
    begin(store, *(run(str(number)) for number in range(3)))
    for claim in store.claim(3):
        park(store, claim, event())
    emit(store)
    woken = [len(store.do(waits.wake(budget=2, now=store.now)).runs) for _ in range(3)]

    assert [2, 1, 0] == woken


def test_emitted_values_expire(store: Harness):
    """Emitted values are deleted after their time, and the name can have another value then."""
    emit(store, keep=seconds(60))
    early = store.do(waits.forget_emits(now=store.now))
    store.wait(60)

    assert (0, 1, 0) == (
        early, store.do(waits.forget_emits(now=store.now)), store.do(waits.forget_emits(now=store.now))
    )  # fmt: skip
    assert emit(store, payload=b"2")


# ---------------------------------------------------------------------------------------------------------- child runs


def child_of(store: Harness, parent: int) -> int:
    """Start a child run, and return its job."""
    (started,) = begin(store, replace(run(None, workflow="ship"), parent_id=parent, parent_path="1"))
    return started.job_id


@pytest.mark.parametrize("early", [True, False])
def test_the_end_of_a_child_wakes_its_parent(store: Harness, *, early: bool):
    """Parked runs are due when their child has ended, also if it ended before they were parked."""
    parent = begun(store)
    child = child_of(store, parent.id)
    if not early:
        park(store, parent, call(child))
    (of_child,) = store.claim()
    from redrive.engine.outcome import Succeeded

    store.end(of_child, Succeeded(b"5"))
    if early:
        park(store, parent, call(child))
    wake(store)
    _, state = claimed(store)

    assert [(child, State.SUCCEEDED, b"5", None)] == [
        (each.job_id, each.state, each.result, each.error) for each in state.children
    ]


def test_the_failure_of_a_child_is_known_to_its_parent(store: Harness):
    """Children that are dead or cancelled have their error and their reason."""
    parent = begun(store)
    first, second = child_of(store, parent.id), child_of(store, parent.id)
    park(store, parent, call(first), call(second, "2"))
    dying, _ = store.claim(2)
    store.end(dying, FATAL)
    assert [True, True] == [store.cancel(second, "early"), store.cancel(second, "too late")]
    wake(store)
    ends = {each.job_id: each for each in claimed(store)[1].children}

    assert (State.DEAD, "no such user", "GAVE_UP") == (ends[first].state, ends[first].error, ends[first].reason)
    assert (State.CANCELLED, "too late", None) == (ends[second].state, ends[second].error, ends[second].reason)


def test_a_child_that_ended_does_not_wake_a_parent_that_waits_for_something_else(store: Harness):
    """Parents that wait for a signal stay parked when a child ends for which they have not waited."""
    parent = begun(store)
    child_of(store, parent.id)
    park(store, parent, wait())
    (of_child,) = store.claim()
    store.end(of_child)

    assert frozenset() == wake(store)


# ---------------------------------------------------------------------------------------------------------- live waits


def test_news_of_running_runs(store: Harness):
    """Running runs can be asked for what has arrived since their claim: signals, values, ends of children, flags."""
    parent = begun(store)
    child = child_of(store, parent.id)
    record(store, parent, wait("1"), event("2"), call(child, "3"))
    empty = store.do(waits.news([parent.id], now=store.now))[parent.id]
    signal(store)
    emit(store)
    store.end(store.take())
    store.do(manage.cancel("checkout", "order-42", why="enough", now=store.now))
    signals, emits, children = (news := store.do(waits.news([parent.id], now=store.now))[parent.id]).arrived

    assert (((), (), ()), RunFlags()) == (empty.arrived, empty.flags)
    assert ([b"7"], [b"1"], [child]) == (
        [each.payload for each in signals], [each.payload for each in emits], [each.job_id for each in children]
    )  # fmt: skip
    assert RunFlags("enough") == news.flags


# ---------------------------------------------------------------------------------------------------------------- races


@pytest.mark.case("D52")
def test_no_wake_up_is_lost_in_a_race(shared: Harness):
    """Signals and emitted values that race with the parking of the run that waits for them are never lost."""
    for number in range(40):
        name = f"run-of-{number}"
        begin(shared, run(name))
        claim, _ = claimed(shared)
        from redrive.engine.outcome import Parked
        from redrive.stores.operations.leases import Ending

        wanted = wait() if number % 2 else event("1", name)
        send = (
            waits.signal("checkout", name, "shipped", b"1", now=shared.now)
            if number % 2
            else waits.emit(name, b"1", now=shared.now)
        )
        ending = leases.settle([Ending(claim, Parked(None, "waits", (wanted,)), 0.0)], now=shared.now)
        shared.at_once([ending, send, waits.wake(now=shared.now)])
        wake(shared)
        wake(shared)

        assert shared.now == view(shared, name).job.scheduled_at, (number, view(shared, name))
        shared.end(claimed(shared)[0])


def test_a_wait_that_was_dropped_does_not_wake_its_run(store: Harness):
    """Waits that are no longer open when a run is parked are deleted, so that their signals do not wake it."""
    begin(store, run("a"), run("b"))
    a, b = store.claim(2)
    record(store, a, wait("1.0.1"), event("1.1.1"), step("2"))
    record(store, b, wait("1.0.1"))
    signal(store, id="a")
    emit(store)
    park(store, a, wait("3", "other"), waits=("3",))
    park(store, b, waits=("1.0.1",))
    wake(store)

    assert ["2", "3"] == [each.path for each in timeline(store, "a").steps]
    assert ["1.0.1"] == [each.path for each in timeline(store, "b").steps]
    assert () == store.claim(2)


def test_a_paused_run_is_not_woken(store: Harness):
    """Signals do not wake a paused run; it finds them when it is resumed."""
    park(store, begun(store), wait())
    store.do(manage.pause("checkout", "order-42", now=store.now))
    signal(store)

    assert frozenset() == wake(store)
    assert Hold.PAUSED is view(store).job.hold
    assert store.do(manage.resume("checkout", "order-42", now=store.now))
    assert 1 == len(claimed(store)[1].signals)
    assert step().path == "1"
