"""The scenarios of the refresh-with-retry-policy document with real jobs, and the conformance case D57.

`docs/how-to/keep-data-fresh.md` runs the same scenarios through the transitions alone. Here each attempt is a job that
a worker claims, runs and settles, over whole days of retries and planned refreshes.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from redrive import App, Context, Disabled, GiveUp, Pending, RetryAfter
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter
from redrive.errors import LeaseLost
from redrive.policy import parse_duration
from redrive.runtime import heartbeat
from redrive.runtime.worker import Worker
from redrive.testing import VirtualClock, drain
from tests.conformance.scenarios.manual_workers import ManualWorker, boom, sweep
from tests.stores.helpers import STORES

PATIENCE = 90
"""Seconds until a test gives up on a worker."""

NEVER = "never"
"""The end of an attempt that never answers."""


class ScriptedRefresh:
    """A refresh of one item, with scripted attempts that each end a number of minutes after their start."""

    def __init__(self, app: App, clock: VirtualClock, policy: str, ends: list) -> None:
        self.app, self.clock, self.ends = app, clock, ends
        self.starts: list[tuple[str, int]] = []
        self.tokens: list[str] = []
        self.news: list[Disabled] = []

        @app.task
        def email(news: Disabled) -> None:
            """Write to the customer."""
            self.news.append(news)

        @app.refresh(policy, on_disabled=email)
        def table(context: Context) -> Pending | None:
            """End as the script requires."""
            self.starts.append((f"{clock.now():%H:%M}", self.row.attempt_no))
            self.tokens.append(context.attempt_uid)
            minutes, end = self.ends.pop(0) if self.ends else (0, None)
            clock.advance(timedelta(minutes=minutes))
            if isinstance(end, Exception):
                raise end
            return Pending("30d") if end is NEVER else None

        self.table = table

    @property
    def row(self):
        """Return the state of the item."""
        return self.table.get("k")

    def live(self, span: str) -> None:
        """Let a span of time pass, in which a worker runs the due jobs."""
        until = self.clock.now() + parse_duration(span)
        drain(self.app, within=span)
        self.clock.advance(max(until - self.clock.now(), timedelta(0)))

    def live_until(self, hour: str) -> None:
        """Let the time pass until an hour of this day."""
        self.live(f"{int(_minutes(hour) - _minutes(f'{self.clock.now():%H:%M}'))}m")


def _minutes(hour: str) -> int:
    return int(hour[:2]) * 60 + int(hour[3:])


def failure(minutes: int = 0):
    """Return an attempt that fails."""
    return minutes, ValueError("out of reach")


def success(minutes: int = 0):
    """Return an attempt that succeeds."""
    return minutes, None


SILENT = (0, NEVER)


@pytest.fixture
def clock():
    """Return a clock that shows the morning of a Monday."""
    return VirtualClock(datetime(2026, 1, 5, 8, tzinfo=UTC))


@pytest.fixture
def begin(app, clock):
    """Track an item under a policy, with scripted attempts."""

    def begin(policy: str, *ends, at_once: bool = True) -> ScriptedRefresh:
        scenario = ScriptedRefresh(app, clock, policy, list(ends))
        scenario.table.keeping(at_once=at_once).track("k")
        return scenario

    return begin


# ----------------------------------------------------------------------------------------------------------------- D57

TWICE = """
    Refresh every day at 6 AM and 6 PM
    Allow 1 hour
    On the first failure, retry immediately
    On the second failure, retry after 1 minute
    On the third failure, retry after 5 minutes
    On the fourth failure, retry after 15 minutes
    On the fifth failure, retry after 30 minutes
    On the sixth failure, retry after 1 hour
"""


@pytest.fixture(params=["memory", "file", "turso", "postgres"])
def twice(request, tmp_path):
    """Make refreshes at 6 AM and 6 PM on each kind of store, from 5 AM on; attempts end when the test ends them."""
    clock = VirtualClock(datetime(2026, 1, 5, 5, tzinfo=UTC))
    apps = []

    def twice(sentence: str = "") -> ScriptedRefresh:
        """Return the scene, under the policy with another sentence."""
        apps.append(App(STORES[request.param](tmp_path), clock=clock))
        scenario = ScriptedRefresh(apps[-1], clock, f"{TWICE}\n{sentence}", [SILENT] * 9)
        scenario.table.keeping(at_once=False).track("k")
        return scenario

    yield twice
    for each in apps:
        each.close()


def fail(scenario: ScriptedRefresh, hour: str, error: Exception | str = "no") -> None:
    """Fail the running attempt at an hour."""
    scenario.live_until(hour)
    scenario.app.fail(scenario.tokens[-1], error)


@pytest.mark.case("D57")
def test_a_retry_near_the_next_planned_refresh_is_moved_to_it(twice):
    """Retries that end in time have their delay; those that might end after 6 PM, or begin after it, wait for 6 PM.

    An attempt without an answer ends at its deadline, where its retry is due like any other (the case's "first
    planned time at the deadline or after it" is that of a retry that does not fit); its late answer is ignored.
    """
    scenario = twice()
    fail(scenario, "06:50")
    fail(scenario, "07:00")  # (a)
    assert ("07:01", 2) == (f"{scenario.row.refresh_at:%H:%M}", scenario.row.attempt_no)

    scenario.live_until("07:01")
    fail(scenario, "07:30", RetryAfter("8h"))
    fail(scenario, "15:35", RetryAfter("15m"))
    fail(scenario, "16:30", RetryAfter("30m"))
    assert [3, 4, 5] == [number for _, number in scenario.starts[2:]]
    scenario.live_until("17:00")
    assert ("18:00", "18:00") == (f"{scenario.row.deadline_at:%H:%M}", f"{scenario.row.refresh_at:%H:%M}")

    scenario.live_until("18:10")  # (e)
    assert ("18:00", 7) == scenario.starts[-1]
    outcomes = [each.outcome for each in scenario.app.job(int(scenario.tokens[-2].split(".")[0])).attempts]
    assert (["failed"], "19:00") == (outcomes, f"{scenario.row.deadline_at:%H:%M}")
    with pytest.raises(LeaseLost):
        scenario.app.complete(scenario.tokens[-2])  # (f)
    assert 7 == scenario.row.attempt_no

    scenario.app.complete(scenario.tokens[-1])  # (d)
    assert (0, "06:00", None) == (
        scenario.row.attempt_no,
        f"{scenario.row.refresh_at:%H:%M}",
        scenario.row.failing_since,
    )


@pytest.mark.parametrize(("sentence", "due"), [("", "18:00"), ("Keep retrying until it succeeds", "17:05")])
def test_a_retry_that_would_end_too_late_is_moved_if_alignment_is_on(twice, sentence, due):
    """Fail at 16:50, with a retry that would run from 17:05 to 18:05 (b of case D57)."""
    scenario = twice(sentence)
    fail(scenario, "06:01")
    fail(scenario, "06:02")
    fail(scenario, "06:30", RetryAfter("9h30m"))
    fail(scenario, "16:50")

    assert (due, 4) == (f"{scenario.row.refresh_at:%H:%M}", scenario.row.attempt_no)


@pytest.mark.parametrize(("sentence", "due"), [("", "18:00"), ("Keep retrying until it succeeds", "18:20")])
def test_a_retry_that_would_begin_too_late_is_moved_if_alignment_is_on(twice, sentence, due):
    """Fail at 17:50, with a retry that would begin at 18:20 (c of case D57)."""
    scenario = twice(sentence)
    for hour, wait in [("06:01", "0s"), ("06:02", "0s"), ("06:30", "9h"), ("15:40", "80m"), ("17:50", "0s")]:
        fail(scenario, hour, RetryAfter(wait))

    assert (due, 5) == (f"{scenario.row.refresh_at:%H:%M}", scenario.row.attempt_no)


# ------------------------------------------------------------------------------------------- the flows and edge cases

MODEL = """
    - Refresh the model every 2 hours
    - Allow 1 hour for a response
    - On the first failure, retry immediately
    - On the second failure, retry after 1 minute
    - On the third failure, retry after 5 minutes
    - On the fourth failure, retry after 10 minutes
    - On the fifth failure, retry after 15 minutes
    - Panic
"""


def test_a_successful_refresh_waits_for_the_next_planned_one(begin):
    """After a success at 8:02 the next planned refresh is at 10."""
    scenario = begin(MODEL, success(2))
    scenario.live("3h")

    assert [("08:00", 1), ("10:00", 1)] == scenario.starts


def test_a_retry_succeeds_after_failures(begin):
    """Retry first immediately, then a minute after the second failure."""
    scenario = begin(MODEL, failure(5), failure(5), success(2))
    scenario.live("3h")

    assert [("08:00", 1), ("08:05", 2), ("08:11", 3), ("10:00", 1)] == scenario.starts


DAILY = """
    Refresh should start every day at 2PM.
    Time limit for a refresh process is 2 hours.
    On the first failure, retry after 21 hours and 30 minutes.
"""


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("", [("14:00", 1), ("14:00", 2)]),
        ("Keep retrying until it succeeds", [("14:00", 1), ("13:30", 2)]),
        ("Retry until the next scheduled refresh", [("14:00", 1), ("14:00", 1)]),
    ],
    ids=["aligned", "until success", "until planned"],
)
def test_a_retry_would_overlap_with_the_next_planned_refresh(begin, sentence, expected):
    """For a retry due at 13:30, with two hours to run and a planned refresh at 14:00, the strategy decides."""
    scenario = begin(f"{DAILY}\n{sentence}", SILENT, success(10), at_once=False)
    scenario.live("1d7h")

    assert expected == scenario.starts[:2]


def test_refreshes_would_overlap_with_each_other(begin):
    """Two refreshes never run at once; a refresh that ends exactly at 10:00 does not lose the one at 10:00."""
    scenario = begin(
        "Refresh is configured to run every 30 minutes, but the timeout is set to 1 hour",
        success(45), success(10), success(30), success(60), success(),
    )  # fmt: skip
    scenario.live("3h")

    assert ["08:00", "09:00", "09:30", "10:00", "11:00"] == [start for start, _ in scenario.starts]


# ------------------------------------------------------------------------------------------------------------ thumbnail

THUMBNAIL = """
    1. Send a request to the thumbnailer service.
    2. Allow 1 minute to complete.
    3. Retry policy:
        - On the first failure, retry immediately.
        - On the second failure, retry after 1 minute.
        - On the third failure, retry after 5 minutes.
        - On the fourth failure, mark the banner with "thumbnail creation failed."
    4. Give up after the final unsuccessful retry.
"""


def test_a_thumbnail_after_an_edit(begin):
    """Edits start it; when all retries are used up the banner is marked, and the next edit begins anew."""
    scenario = begin(THUMBNAIL, *[failure()] * 4)
    scenario.live("1d")

    assert [("08:00", 1), ("08:00", 2), ("08:01", 3), ("08:06", 4)] == scenario.starts
    ((mark,),) = [each.actions for each in scenario.news]
    assert ("mark", "banner", "thumbnail creation failed") == (mark.name, mark.to, mark.text)

    scenario.table.update("k")
    scenario.live("1d")
    assert [("08:00", 1)] == scenario.starts[4:]
    assert (False, None) == (scenario.row.disabled_until_update, scenario.row.refresh_at)


def test_four_attempts_of_a_thumbnail_time_out(begin):
    """Each of the four attempts has a minute, and each retry is delayed after that."""
    scenario = begin(THUMBNAIL, *[SILENT] * 4)
    scenario.live("1h")

    assert [("08:00", 1), ("08:01", 2), ("08:03", 3), ("08:09", 4)] == scenario.starts
    assert (1, "Cannot refresh after 4 attempt(s)") == (len(scenario.news), scenario.row.disabled_reason)


def test_a_banner_that_is_edited_during_an_attempt_starts_again(begin):
    """After a second edit the answer for the first one is refused, and all retries are available again."""
    scenario = begin(THUMBNAIL, failure(), SILENT, *[failure()] * 3)
    scenario.live("10s")
    scenario.table.update("k")
    scenario.live("30s")

    with pytest.raises(LeaseLost):
        scenario.app.complete(scenario.tokens[1])
    assert [1, 2, 1, 2] == [number for _, number in scenario.starts]


# ------------------------------------------------------------------------------------------------------- twice per day

TWICE_PER_DAY = """
    1. Refresh BigTable twice per day at 6 AM and 4 PM
    2. Allow 1 hour to complete
    3. Retry policy:
       - On the first failure, retry immediately.
       - On the second failure, retry after 1 minute.
       - On the third failure, retry after 5 minutes.
       - On the fourth failure, retry after 15 minutes.
       - On the fifth failure, retry after 30 minutes.
       - On the sixth failure, retry after 1 hour.
"""
GIVES_UP = f"""{TWICE_PER_DAY}
    4. Give up after the final unsuccessful retry:
       - Disable auto-refresh.
       - Email the customer that the BigTable refresh has been disabled.
"""
PATIENT = f"""{TWICE_PER_DAY}
       - On the seventh failure:
         - Reset `attempt_no`
         - Wait until next scheduled refresh
    4. Give up after one week of unsuccessful refresh attempts:
       - Disable auto-refresh
       - Send the customer an email notifying them that BigTable refresh has been disabled
"""


@pytest.fixture
def midnight(clock):
    """Advance the clock to the first hour of the next day."""
    clock.advance("16h")


@pytest.mark.usefixtures("midnight")
def test_twice_per_day_without_any_answer(begin, clock):
    """In the worst case seven attempts of an hour each run, the last until 14:51, and the customer gets an e-mail."""
    scenario = begin(GIVES_UP, *[SILENT] * 9, at_once=False)
    scenario.live("14h50m")
    assert [] == scenario.news
    scenario.live("2d")

    assert ["06:00", "07:00", "08:01", "09:06", "10:21", "11:51", "13:51"] == [start for start, _ in scenario.starts]
    written = next(job for job in scenario.app.jobs.select() if job.task == "email")
    assert ("14:51", clock.now() - timedelta(days=2) + timedelta(minutes=1)) == (
        f"{written.enqueued_at:%H:%M}", written.enqueued_at,
    )  # fmt: skip
    assert ["Cannot refresh after 7 attempt(s)"] == [each.reason for each in scenario.news]
    assert ["disable", "email"] == [each.name for each in scenario.news[0].actions]


@pytest.mark.usefixtures("midnight")
def test_twice_per_day_where_each_attempt_fails_at_once(begin):
    """Seven failures come with their delays; after the customer has repaired the table refreshes begin anew."""
    scenario = begin(GIVES_UP, *[failure()] * 7, at_once=False)
    scenario.live("12h")
    assert ["06:00", "06:00", "06:01", "06:06", "06:21", "06:51", "07:51"] == [start for start, _ in scenario.starts]

    scenario.table.update("k")
    scenario.live("12h")
    assert [("12:00", 1), ("16:00", 1)] == scenario.starts[7:]


@pytest.mark.parametrize("fresh_url", ["memory"], indirect=True)
@pytest.mark.usefixtures("midnight")
def test_twice_per_day_and_given_up_after_a_week(begin):
    """Seven attempts run at each of fourteen times; after a week the refresh is given up, without another attempt."""
    scenario = begin(PATIENT, *[failure()] * 200, at_once=False)
    scenario.live("7d5h59m")
    assert (98, []) == (len(scenario.starts), scenario.news)
    scenario.live("1m")

    assert [(98, "No successful refresh for too long")] == [(each.attempts, each.reason) for each in scenario.news]
    scenario.live("3d")
    assert (98, 1) == (len(scenario.starts), len(scenario.news))
    assert () == scenario.app.database.verify()


@pytest.mark.parametrize("fresh_url", ["memory"], indirect=True)
@pytest.mark.usefixtures("midnight")
def test_twice_per_day_and_a_success_on_the_seventh_day(begin):
    """Success on the seventh day resets the week: another week of failures may follow."""
    scenario = begin(PATIENT, *[failure()] * 90, success(), *[failure()] * 200, at_once=False)
    scenario.live("7d12h")
    assert (False, []) == (scenario.row.disabled_until_update, scenario.news)
    scenario.live("6d12h")

    assert [("16:00", 1)] == scenario.starts[91:92]
    assert 1 == len(scenario.news)


# ------------------------------------------------------------------------------------------------------ while it runs


@pytest.mark.parametrize("what", ["update", "trigger", "untrack"])
def test_a_running_attempt_is_stopped(app, other_app, monkeypatch, what):
    """Handlers in a worker are interrupted when a user changes the item, starts it anew, or gives it up."""
    monkeypatch.setattr(heartbeat, "LOOK", 0.005)
    began, stopped = threading.Event(), threading.Event()

    @app.refresh(MODEL)
    async def table(context: Context) -> None:
        """Wait for ever, in the first attempt."""
        if context.job_id > 1:
            return
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    def act() -> None:
        """Call the method from another process."""
        known = table if other_app is app else other_app.refresh(MODEL, name="table")(table.function)
        getattr(known, what)("k")

    async def run() -> None:
        """Run a worker until the handler was stopped."""
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        assert await asyncio.to_thread(began.wait, PATIENCE)
        await asyncio.to_thread(act)
        assert await asyncio.to_thread(stopped.wait, PATIENCE)
        worker.stop()
        await running

    table.track("k")
    asyncio.run(asyncio.wait_for(run(), PATIENCE))

    assert State.CANCELLED == app.job(1).state
    drain(app, within="1s")
    assert ([] if what == "untrack" else [0]) == [each.attempt_no for each in table.tracked()]


# ------------------------------------------------------------------------------------------------------------- crashes


def test_a_crash_keeps_the_attempt(begin, app, clock):
    """After a crash the job runs again under another lease, as the same attempt; the old lease's answer is refused."""
    scenario = begin(MODEL)
    first = ManualWorker(app, "A", lease_for="15s")
    held = first.take()
    clock.advance("16s")
    sweep(app)
    again = ManualWorker(app, "B").take()

    assert (held.id, (held.lease_id,)) == (again.id, tuple(first.settle((held, boom())).lost))
    assert (1, str(held.id)) == (scenario.row.attempt_no, scenario.row.state.attempt_uid)


def test_a_crash_of_an_attempt_that_is_not_idempotent_is_a_failure(app, clock):
    """After a crash of a task that is not idempotent the next attempt is another job, by the retries of the refresh."""
    table = app.refresh(MODEL, idempotent=False, name="table")(lambda: None)
    table.track("k")
    held = ManualWorker(app, "A", lease_for="15s").take()
    clock.advance("16s")
    sweep(app)
    drain(app, within="1s")

    assert (State.DEAD, 2) == (app.job(held.id).state, len(app.jobs.select()))
    assert (0, 1) == (table.get("k").attempt_no, len(app.jobs.select(Filter(caught=True, refreshes=True))))


def test_a_permanent_failure_between_the_deadline_and_the_sweep_counts(begin):
    """Permanent failures count after the deadline if they arrive before the sweep."""
    scenario = begin(MODEL, (61, GiveUp("The page is gone")))
    scenario.live("2h")

    assert ("The page is gone", 1) == (scenario.row.disabled_reason, len(scenario.news))
