"""The ends of attempts at refreshes and what follows: retries, giving up, and the notification.

A workday passes in virtual time. At one instant the order is: completions, sweeps, starts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from redrive import App, Context, Disabled, GiveUp, Pending, Policy, Refresh, RefreshPolicy, RetryAfter, Snooze
from redrive.engine.lifecycle import State
from redrive.errors import Cancel, LeaseLost, TaskDefinitionError
from redrive.policy import parse_duration
from redrive.schedule import Exhausted
from redrive.testing import VirtualClock, drain

FAILED = "failed: ValueError: no; next at 2026-03-01 "

NOON = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
EVERY = """
    Refresh every 2 hours
    Allow 10 minutes
    On the first failure, retry immediately
    On the second failure, retry after 1 minute
    Give up after the final unsuccessful retry:
        - Disable auto-refresh
        - Email the customer that their table is stale
"""


@pytest.fixture
def clock():
    """Half a minute after noon."""
    return VirtualClock(NOON)


class RefreshScenario:
    """An app with one refresh with attempts that end as the test sets, and succeed afterwards."""

    def __init__(self, app: App, clock: VirtualClock) -> None:
        self.app, self.clock = app, clock
        self.ends: list = []
        self.began: list[tuple[str, int]] = []
        self.tokens: list[str] = []
        self.urls: list[str] = []
        self.news: list[Disabled] = []

        @app.task
        def report_disabled(news: Disabled) -> None:
            """Hear that something was given up."""
            self.news.append(news)

        @app.refresh(EVERY, on_disabled=report_disabled)
        def table(url: str, ctx: Context) -> int | Pending:
            """End as the test sets."""
            self.began.append((f"{clock.now():%H:%M:%S}", self.row().attempt_no))
            self.tokens.append(ctx.attempt_uid)
            self.urls.append(url)
            end = self.ends.pop(0) if self.ends else 1
            if isinstance(end, Exception):
                raise end
            return end() if callable(end) else end

        self.table: Refresh = table

    def live(self, span: str) -> None:
        """Let so much time pass, in which workers do what is due."""
        until = self.clock.now() + parse_duration(span)
        drain(self.app, within=span)
        self.clock.advance(max(until - self.clock.now(), timedelta(0)))

    def row(self):
        """Return the row of the item."""
        return self.table.get("k")


@pytest.fixture
def scenario(app: App, clock: VirtualClock):
    """Return a scene with a tracked item that has not started."""
    scenario = RefreshScenario(app, clock)
    scenario.table.keeping(at_once=False).track("k", "a")
    scenario.clock.advance(timedelta(hours=2, seconds=-30))
    return scenario


# ------------------------------------------------------------------------------------------------------------- failing


def test_failures_are_retried_by_the_delays_of_the_policy(scenario: RefreshScenario):
    """Each attempt counts, and a success forgets them all."""
    scenario.ends = [ValueError("no"), ValueError("no")]
    scenario.live("5m")

    assert [("14:00:00", 1), ("14:00:00", 2), ("14:01:00", 3)] == scenario.began
    assert (0, None, 0) == (
        scenario.row().attempt_no,
        scenario.row().failing_since,
        scenario.row().attempts_since_success,
    )


def test_a_failed_attempt_that_another_one_follows_is_a_warning(
    scenario: RefreshScenario, caplog: pytest.LogCaptureFixture
):
    """The line has the time and the reason of the next attempt; one with which the refresh gives up is an error."""

    @scenario.app.refresh(replace(RefreshPolicy.parse("Refresh every 2 hours"), on_exhausted=Exhausted.WAIT_NEXT))
    def plain() -> None:
        raise ValueError("no")

    plain.track("k")
    scenario.ends = [ValueError("no"), ValueError("no"), ValueError("no")]
    scenario.live("5m")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if "refresh:" in each.getMessage()]

    assert [
        ("ERROR", "(table, refresh:table/k) died at attempt 1 of 1 (attempts)"),
        ("WARNING", f"(plain, refresh:plain/k): attempt 1 {FAILED}16:00:00 UTC (the next planned refresh)"),
        ("WARNING", f"(table, refresh:table/k): attempt 1 {FAILED}14:00:00 UTC (retry)"),
        ("WARNING", f"(table, refresh:table/k): attempt 2 {FAILED}14:01:00 UTC (retry)"),
    ] == sorted((level, re.sub(r"job \d+ ", "", text.split(": 1 of 1")[0])) for level, text in lines)


def test_the_job_of_a_failed_attempt_counts_as_caught(scenario: RefreshScenario):
    """Jobs of failed attempts are dead and caught: they are not retried and block no other."""
    scenario.ends = [ValueError("no")]
    scenario.live("5m")
    failed, retried = sorted(scenario.app.jobs.select(), key=lambda job: job.id)

    assert (State.DEAD, scenario.clock.now() - timedelta(minutes=5)) == (failed.state, failed.caught_at)
    assert ("refresh:table/k", State.SUCCEEDED) == (retried.origin, retried.state)
    assert (0, ()) == (scenario.app.jobs.stats().dead, scenario.app.database.verify())


def test_after_the_last_retry_an_item_is_disabled_and_on_disabled_runs_once(scenario: RefreshScenario):
    """After the last retry `on_disabled` receives the reason, the error and the effects of the policy, once."""
    scenario.ends = [ValueError("out of reach")] * 9
    scenario.live("1d")

    assert 3 == len(scenario.began)
    assert scenario.row().disabled_until_update
    began = datetime(2026, 3, 1, 14, tzinfo=UTC)
    policy = RefreshPolicy.parse(EVERY)
    reason = "Cannot refresh after 3 attempt(s)"
    assert reason == scenario.row().disabled_reason
    assert [Disabled("table", "k", reason, "out of reach", 3, began, policy.on_give_up)] == scenario.news
    assert [("disable", None), ("email", "customer")] == [(each.name, each.to) for each in scenario.news[0].actions]


def test_the_reason_of_a_give_up_reaches_on_disabled(scenario: RefreshScenario):
    """No retry follows, and its words are the reason."""
    scenario.ends = [GiveUp("Provided URL is invalid: https://example.com/broken")]
    scenario.live("1d")

    assert 1 == len(scenario.began)
    assert "Provided URL is invalid: https://example.com/broken" == scenario.row().disabled_reason
    assert ["Provided URL is invalid: https://example.com/broken"] == [each.reason for each in scenario.news]


def test_an_update_enables_a_disabled_item(scenario: RefreshScenario):
    """It begins anew, with all its retries."""
    scenario.ends = [GiveUp("wrong"), ValueError("no"), ValueError("no"), ValueError("no")]
    scenario.live("1h")
    scenario.table.track("k", "other")
    assert "refused_disabled" == scenario.table.trigger("k").outcome
    scenario.table.update("k")
    scenario.live("1h")

    assert [("14:00:00", 1), ("15:00:00", 1), ("15:00:00", 2), ("15:01:00", 3)] == scenario.began
    assert ["wrong", "Cannot refresh after 3 attempt(s)"] == [each.reason for each in scenario.news]


def test_a_retry_comes_no_earlier_than_its_hint(scenario: RefreshScenario):
    """RetryAfter stretches the delay of the policy, and does not shrink it."""
    scenario.ends = [RetryAfter("30m"), RetryAfter("1s")]
    scenario.live("1h")

    assert ["14:00:00", "14:30:00", "14:31:00"] == [when for when, _ in scenario.began]


def test_a_snoozed_attempt_continues_as_the_same_attempt(scenario: RefreshScenario):
    """It spends no retry."""
    scenario.ends = [Snooze("5m")]
    scenario.live("1h")

    assert [("14:00:00", 1), ("14:05:00", 1)] == scenario.began
    assert 1 == len(scenario.app.jobs.select())


def test_a_snooze_does_not_move_the_deadline(scenario: RefreshScenario):
    """Attempts that snooze beyond the deadline have failed at the deadline."""
    scenario.ends = [Snooze("1h")]
    scenario.live("1h")

    assert [("14:00:00", 1), ("14:10:00", 2)] == scenario.began
    assert {State.CANCELLED, State.SUCCEEDED} == {job.state for job in scenario.app.jobs.select()}


@pytest.mark.parametrize("end", ["handler", "operator"])
def test_a_cancelled_attempt_has_failed(scenario: RefreshScenario, end: str):
    """Cancelled attempts have failed, whether the handler or an operator cancels; the refresh goes on."""
    if end == "handler":
        scenario.ends = [Cancel("not now")]
    else:
        scenario.ends = [lambda: Pending("1h")]
        scenario.live("1m")
        scenario.app.job(scenario.row().job_id or 0).cancel()
    scenario.live("5m")

    assert [1, 2] == [number for _, number in scenario.began]
    assert [State.CANCELLED, State.SUCCEEDED] == [
        job.state for job in sorted(scenario.app.jobs.select(), key=lambda job: job.id)
    ]


def test_a_result_that_cannot_be_stored_disables_no_item(scenario: RefreshScenario):
    """Results that cannot be stored are ordinary failures."""
    scenario.ends = [object()]
    scenario.live("5m")

    assert [("14:00:00", 1), ("14:00:00", 2)] == scenario.began
    assert ["BAD_RESULT", None] == [job.reason for job in sorted(scenario.app.jobs.select(), key=lambda job: job.id)]


# ------------------------------------------------------------------------------------------------- answers from outside


def test_an_answer_may_come_from_outside(scenario: RefreshScenario):
    """Attempts may be completed from outside with their token."""
    scenario.ends = [Pending("1h")]
    scenario.live("5m")
    assert "14:10" == f"{scenario.row().deadline_at:%H:%M}"

    assert scenario.app.complete(scenario.tokens[0], 7)
    assert not scenario.app.complete(scenario.tokens[0], 7)
    assert (0, "16:00") == (scenario.row().attempt_no, f"{scenario.row().refresh_at:%H:%M}")


def test_a_handler_that_only_ever_waits_takes_any_answer(app: App):
    """``-> Pending`` alone accepts any result."""
    tokens = []

    @app.refresh(EVERY)
    def table(ctx: Context) -> Pending:
        """Order it."""
        tokens.append(ctx.attempt_uid)
        return Pending("1h")

    table.track("k")
    drain(app, within="1s")

    assert app.complete(tokens[0], {"lines": 7})
    assert {"lines": 7} == app.job(1).result()


@pytest.mark.parametrize(
    ("error", "reason"), [("asleep", None), (ValueError("asleep"), None), (GiveUp("No such page"), "No such page")]
)
def test_a_failure_may_come_from_outside(scenario: RefreshScenario, error: Exception | str, reason: str | None):
    """Failures from outside are retried, or final if they are permanent."""
    scenario.ends = [Pending("1h")]
    scenario.live("5m")
    scenario.app.fail(scenario.tokens[0], error)

    assert reason == scenario.row().disabled_reason
    assert ([] if reason else ["14:05:00"]) == [f"{at:%H:%M:%S}" for at in [scenario.row().refresh_at] if at]


def test_no_answer_is_a_failure_at_the_deadline(scenario: RefreshScenario):
    """Without completion, retries count from the deadline, and late calls are refused."""
    scenario.ends = [Pending("1h")] * 3
    scenario.live("1h")

    assert [("14:00:00", 1), ("14:10:00", 2), ("14:21:00", 3)] == scenario.began
    assert "Cannot refresh after 3 attempt(s)" == scenario.row().disabled_reason
    assert ["the deadline of the refresh has passed"] == [each.error for each in scenario.news]
    for token in scenario.tokens:
        with pytest.raises(LeaseLost):
            scenario.app.complete(token, 7)


def test_an_answer_between_the_deadline_and_the_sweep_counts(scenario: RefreshScenario):
    """Completions between the deadline and the sweep are accepted."""
    scenario.ends = [Pending("3h")]
    scenario.live("5m")
    scenario.clock.advance("1h")

    assert scenario.app.complete(scenario.tokens[0], 7)
    assert (0, None) == (scenario.row().attempt_no, scenario.row().failing_since)


def test_a_late_sweep_decides_like_a_timely_one(scenario: RefreshScenario):
    """After a late sweep the retry that follows from the deadline starts at once."""
    scenario.ends = [Pending("1h")]
    scenario.live("5m")
    scenario.clock.advance("30m")
    scenario.live("1m")

    assert [("14:00:00", 1), ("14:35:00", 2)] == scenario.began


def test_an_attempt_that_waits_for_a_worker_keeps_its_whole_timeout(scenario: RefreshScenario):
    """Its job stands in a queue that is paused for more than a day: nothing has failed, no retry is spent."""
    scenario.app.queue("default").pause()
    scenario.live("25h")
    assert ([], 1, None) == (scenario.began, scenario.row().attempt_no, scenario.row().disabled_reason)
    assert [State.READY] == [job.state for job in scenario.app.jobs.select()]

    scenario.app.queue("default").resume()
    scenario.live("1s")
    assert [("15:00:00", 1)] == scenario.began
    assert 0 == scenario.row().attempt_no


# ----------------------------------------------------------------------------------------------------------- in between


def act(scenario: RefreshScenario, what: str) -> None:
    """Return an operator's action on an item."""
    match what:
        case "update":
            scenario.table.update("k")
        case "trigger":
            scenario.table.trigger("k")
        case "untrack":
            scenario.table.untrack("k")


@pytest.mark.parametrize("what", ["update", "trigger", "untrack"])
@pytest.mark.parametrize("end", [7, GiveUp("No such page"), ValueError("no")], ids=["succeeds", "gives up", "fails"])
def test_an_operators_action_makes_a_running_attempt_stale(scenario: RefreshScenario, what: str, end: object):
    """After an operator's action the job of a running attempt is cancelled, and its end has no effect."""

    def handler():
        act(scenario, what)
        if isinstance(end, Exception):
            raise end
        return end

    scenario.ends = [handler]
    scenario.live("1s")

    assert State.CANCELLED == scenario.app.job(1).state
    assert [] == scenario.news
    expected = {"update": [1, 1], "trigger": [1, 1], "untrack": [1]}[what]
    assert expected == [number for _, number in scenario.began]


@pytest.mark.parametrize("what", ["update", "trigger", "untrack"])
def test_an_operators_action_makes_an_awaited_answer_stale(scenario: RefreshScenario, what: str):
    """After an operator's action the token of a waiting attempt is refused."""
    scenario.ends = [Pending("1h")]
    scenario.live("5m")
    act(scenario, what)

    for answer in (lambda token: scenario.app.complete(token, 7), lambda token: scenario.app.fail(token, GiveUp("no"))):
        with pytest.raises(LeaseLost):
            answer(scenario.tokens[0])
    assert [] == scenario.news


def test_a_pause_lets_running_attempts_finish(scenario: RefreshScenario):
    """Its success counts; nothing follows before the pause ends."""
    scenario.ends = [lambda: scenario.table.pause("k") or 1]
    scenario.live("5h")

    assert (1, 0, True) == (len(scenario.began), scenario.row().attempt_no, scenario.row().paused)


def test_new_arguments_are_those_of_the_next_attempt(scenario: RefreshScenario):
    """Attempts that wait for a worker keep the arguments with which they were started."""
    scenario.app.queue("default").pause()
    scenario.live("1s")
    scenario.table.track("k", "b")
    scenario.app.queue("default").resume()
    scenario.live("2h")

    assert ["a", "b"] == scenario.urls


# ----------------------------------------------------------------------------------------------------------- deploying


def redeploy(scenario: RefreshScenario, policy: str) -> None:
    """Start the program again with another policy, for the same items in the same database."""
    scenario.table.refresh_policy = RefreshPolicy.parse(policy)


def test_a_changed_refresh_policy_replans_items_without_their_own_policy(scenario: RefreshScenario):
    """After a deployment, items follow the new policy unless they have their own."""
    scenario.table.keeping(policy="Refresh every 3 hours; allow 10 minutes", at_once=False).track("own", "a")
    scenario.live("1m")
    redeploy(scenario, "Refresh every hour; allow 10 minutes")
    scenario.live("1s")

    assert ["15:00", "15:00"] == [f"{scenario.table.get(key).refresh_at:%H:%M}" for key in ("k", "own")]
    scenario.live("1h")
    assert ["16:00", "18:00"] == [f"{scenario.table.get(key).refresh_at:%H:%M}" for key in ("k", "own")]


def test_a_retry_keeps_its_time_when_the_policy_changes(scenario: RefreshScenario):
    """Planned retries keep their time; the new policy decides from their end on."""
    scenario.ends = [RetryAfter("30m"), ValueError("no")]
    scenario.live("1m")
    redeploy(scenario, "Refresh every hour; allow 10 minutes; on the first failure, retry after 2 minutes")
    scenario.live("1h")

    assert [("14:00:00", 1), ("14:30:00", 2)] == scenario.began
    assert "Cannot refresh after 2 attempt(s)" == scenario.row().disabled_reason


# -------------------------------------------------------------------------------------------------------- who is told


@pytest.mark.parametrize(
    "report_disabled", [lambda: None, lambda news: None, lambda a, b: None], ids=["none", "untyped", "two"]
)
def test_an_on_disabled_task_with_another_signature_is_refused(app: App, report_disabled):
    """Another signature is found at the start, with what it has and what it should have."""
    app.task(name="told")(report_disabled)
    app.refresh(EVERY, on_disabled="told", name="table")(lambda: None)

    with pytest.raises(TaskDefinitionError, match=r"on_disabled='told' must take exactly one redrive\.Disabled"):
        app.check()


def test_the_on_disabled_task_has_its_own_retries(app: App, clock: VirtualClock):
    """It is a task like any other: its queue, its priority and its policy count, and its parameter has any name."""
    failing, received = [ValueError("no mail")] * 2, []

    @app.task(retry="2 1m", queue="mail", priority=-1)
    async def write_letter(what_happened: Disabled, ctx: Context) -> None:
        """Fail twice."""
        if failing:
            raise failing.pop()
        received.append((what_happened.key, ctx.attempt))

    @app.refresh(EVERY, on_disabled=write_letter)
    async def table() -> None:
        """Give up."""
        raise GiveUp("no")

    table.track("k")
    drain(app, within="1h")

    (letter,) = [job for job in app.jobs.select() if job.task == "write_letter"]
    assert ([("k", 3)], "mail", -1) == (received, letter.queue, letter.priority)


def test_without_on_disabled_the_reason_is_in_the_row(app: App):
    """Without `on_disabled`, the reason is in the row only."""

    @app.refresh(EVERY)
    def table() -> None:
        """Give up."""
        raise GiveUp

    table.track("k")
    drain(app, within="1h")

    assert ("gave up", 1) == (table.get("k").disabled_reason, len(app.jobs.select()))


def test_the_job_of_an_attempt_has_no_retries_of_its_own(scenario: RefreshScenario):
    """Jobs of attempts have no retries of their own, and the timeout of the refresh policy."""
    scenario.live("1s")
    (job,) = scenario.app.jobs.select()

    assert Policy(attempts=1, attempt_timeout="10m", idempotent=True) == job.policy
