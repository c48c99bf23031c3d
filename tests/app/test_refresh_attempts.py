"""The ends of attempts at refreshes and what follows: retries, giving up, and the notification.

A workday passes in virtual time. At one instant the order is: completions, sweeps, starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive import App, Context, Disabled, GiveUp, Pending, Policy, Refresh, RefreshPolicy, RetryAfter, Snooze
from redrive.engine.lifecycle import State
from redrive.errors import Cancel, LeaseLost, TaskDefinitionError
from redrive.policy import parse_duration
from redrive.testing import VirtualClock, drain

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
        def told(news: Disabled) -> None:
            """Hear that something was given up."""
            self.news.append(news)

        @app.refresh(EVERY, on_disabled=told)
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
def scene(app: App, clock: VirtualClock):
    """Return a scene with a tracked item that has not started."""
    scene = RefreshScenario(app, clock)
    scene.table.keeping(at_once=False).track("k", "a")
    scene.clock.advance(timedelta(hours=2, seconds=-30))
    return scene


# ------------------------------------------------------------------------------------------------------------- failing


def test_failures_are_retried_by_the_delays_of_the_policy(scene: RefreshScenario):
    """Each attempt counts, and a success forgets them all."""
    scene.ends = [ValueError("no"), ValueError("no")]
    scene.live("5m")

    assert [("14:00:00", 1), ("14:00:00", 2), ("14:01:00", 3)] == scene.began
    assert (0, None, 0) == (scene.row().attempt_no, scene.row().failing_since, scene.row().attempts_since_success)


def test_the_job_of_a_failed_attempt_counts_as_caught(scene: RefreshScenario):
    """Jobs of failed attempts are dead and caught: they are not retried and block no other."""
    scene.ends = [ValueError("no")]
    scene.live("5m")
    failed, retried = sorted(scene.app.jobs.select(), key=lambda job: job.id)

    assert (State.DEAD, scene.clock.now() - timedelta(minutes=5)) == (failed.state, failed.caught_at)
    assert ("refresh:table/k", State.SUCCEEDED) == (retried.origin, retried.state)
    assert (0, ()) == (scene.app.jobs.stats().dead, scene.app.database.verify())


def test_after_the_last_retry_an_item_is_disabled_and_on_disabled_runs_once(scene: RefreshScenario):
    """After the last retry `on_disabled` receives the reason, the error and the effects of the policy, once."""
    scene.ends = [ValueError("out of reach")] * 9
    scene.live("1d")

    assert 3 == len(scene.began)
    assert scene.row().disabled_until_update
    began = datetime(2026, 3, 1, 14, tzinfo=UTC)
    policy = RefreshPolicy.parse(EVERY)
    reason = "Cannot refresh after 3 attempt(s)"
    assert reason == scene.row().disabled_reason
    assert [Disabled("table", "k", reason, "out of reach", 3, began, policy.on_give_up)] == scene.news
    assert [("disable", None), ("email", "customer")] == [(each.name, each.to) for each in scene.news[0].actions]


def test_the_reason_of_a_give_up_reaches_on_disabled(scene: RefreshScenario):
    """No retry follows, and its words are the reason."""
    scene.ends = [GiveUp("Provided URL is invalid: https://example.com/broken")]
    scene.live("1d")

    assert 1 == len(scene.began)
    assert "Provided URL is invalid: https://example.com/broken" == scene.row().disabled_reason
    assert ["Provided URL is invalid: https://example.com/broken"] == [each.reason for each in scene.news]


def test_an_update_enables_a_disabled_item(scene: RefreshScenario):
    """It begins anew, with all its retries."""
    scene.ends = [GiveUp("wrong"), ValueError("no"), ValueError("no"), ValueError("no")]
    scene.live("1h")
    scene.table.track("k", "other")
    assert "refused_disabled" == scene.table.trigger("k").outcome
    scene.table.update("k")
    scene.live("1h")

    assert [("14:00:00", 1), ("15:00:00", 1), ("15:00:00", 2), ("15:01:00", 3)] == scene.began
    assert ["wrong", "Cannot refresh after 3 attempt(s)"] == [each.reason for each in scene.news]


def test_a_retry_comes_no_earlier_than_its_hint(scene: RefreshScenario):
    """RetryAfter stretches the delay of the policy, and does not shrink it."""
    scene.ends = [RetryAfter("30m"), RetryAfter("1s")]
    scene.live("1h")

    assert ["14:00:00", "14:30:00", "14:31:00"] == [when for when, _ in scene.began]


def test_a_snoozed_attempt_continues_as_the_same_attempt(scene: RefreshScenario):
    """It spends no retry."""
    scene.ends = [Snooze("5m")]
    scene.live("1h")

    assert [("14:00:00", 1), ("14:05:00", 1)] == scene.began
    assert 1 == len(scene.app.jobs.select())


def test_a_snooze_does_not_move_the_deadline(scene: RefreshScenario):
    """Attempts that snooze beyond the deadline have failed at the deadline."""
    scene.ends = [Snooze("1h")]
    scene.live("1h")

    assert [("14:00:00", 1), ("14:10:00", 2)] == scene.began
    assert {State.CANCELLED, State.SUCCEEDED} == {job.state for job in scene.app.jobs.select()}


@pytest.mark.parametrize("end", ["handler", "operator"])
def test_a_cancelled_attempt_has_failed(scene: RefreshScenario, end: str):
    """Cancelled attempts have failed, whether the handler or an operator cancels; the refresh goes on."""
    if end == "handler":
        scene.ends = [Cancel("not now")]
    else:
        scene.ends = [lambda: Pending("1h")]
        scene.live("1m")
        scene.app.job(scene.row().job_id or 0).cancel()
    scene.live("5m")

    assert [1, 2] == [number for _, number in scene.began]
    assert [State.CANCELLED, State.SUCCEEDED] == [
        job.state for job in sorted(scene.app.jobs.select(), key=lambda job: job.id)
    ]


def test_a_result_that_cannot_be_stored_disables_no_item(scene: RefreshScenario):
    """Results that cannot be stored are ordinary failures."""
    scene.ends = [object()]
    scene.live("5m")

    assert [("14:00:00", 1), ("14:00:00", 2)] == scene.began
    assert ["BAD_RESULT", None] == [job.reason for job in sorted(scene.app.jobs.select(), key=lambda job: job.id)]


# ------------------------------------------------------------------------------------------------- answers from outside


def test_an_answer_may_come_from_outside(scene: RefreshScenario):
    """Attempts may be completed from outside with their token."""
    scene.ends = [Pending("1h")]
    scene.live("5m")
    assert "14:10" == f"{scene.row().deadline_at:%H:%M}"

    assert scene.app.complete(scene.tokens[0], 7)
    assert not scene.app.complete(scene.tokens[0], 7)
    assert (0, "16:00") == (scene.row().attempt_no, f"{scene.row().refresh_at:%H:%M}")


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
def test_a_failure_may_come_from_outside(scene: RefreshScenario, error: Exception | str, reason: str | None):
    """Failures from outside are retried, or final if they are permanent."""
    scene.ends = [Pending("1h")]
    scene.live("5m")
    scene.app.fail(scene.tokens[0], error)

    assert reason == scene.row().disabled_reason
    assert ([] if reason else ["14:05:00"]) == [f"{at:%H:%M:%S}" for at in [scene.row().refresh_at] if at]


def test_no_answer_is_a_failure_at_the_deadline(scene: RefreshScenario):
    """Without completion, retries count from the deadline, and late calls are refused."""
    scene.ends = [Pending("1h")] * 3
    scene.live("1h")

    assert [("14:00:00", 1), ("14:10:00", 2), ("14:21:00", 3)] == scene.began
    assert "Cannot refresh after 3 attempt(s)" == scene.row().disabled_reason
    assert ["the deadline of the refresh has passed"] == [each.error for each in scene.news]
    for token in scene.tokens:
        with pytest.raises(LeaseLost):
            scene.app.complete(token, 7)


def test_an_answer_between_the_deadline_and_the_sweep_counts(scene: RefreshScenario):
    """Completions between the deadline and the sweep are accepted."""
    scene.ends = [Pending("3h")]
    scene.live("5m")
    scene.clock.advance("1h")

    assert scene.app.complete(scene.tokens[0], 7)
    assert (0, None) == (scene.row().attempt_no, scene.row().failing_since)


def test_a_late_sweep_decides_like_a_timely_one(scene: RefreshScenario):
    """After a late sweep the retry that follows from the deadline starts at once."""
    scene.ends = [Pending("1h")]
    scene.live("5m")
    scene.clock.advance("30m")
    scene.live("1m")

    assert [("14:00:00", 1), ("14:35:00", 2)] == scene.began


def test_an_attempt_that_waits_for_a_worker_keeps_its_whole_timeout(scene: RefreshScenario):
    """Its job stands in a queue that is paused for more than a day: nothing has failed, no retry is spent."""
    scene.app.queue("default").pause()
    scene.live("25h")
    assert ([], 1, None) == (scene.began, scene.row().attempt_no, scene.row().disabled_reason)
    assert [State.READY] == [job.state for job in scene.app.jobs.select()]

    scene.app.queue("default").resume()
    scene.live("1s")
    assert [("15:00:00", 1)] == scene.began
    assert 0 == scene.row().attempt_no


# ----------------------------------------------------------------------------------------------------------- in between


def act(scene: RefreshScenario, what: str) -> None:
    """Return an operator's action on an item."""
    match what:
        case "update":
            scene.table.update("k")
        case "trigger":
            scene.table.trigger("k")
        case "untrack":
            scene.table.untrack("k")


@pytest.mark.parametrize("what", ["update", "trigger", "untrack"])
@pytest.mark.parametrize("end", [7, GiveUp("No such page"), ValueError("no")], ids=["succeeds", "gives up", "fails"])
def test_an_operators_action_makes_a_running_attempt_stale(scene: RefreshScenario, what: str, end: object):
    """After an operator's action the job of a running attempt is cancelled, and its end has no effect."""

    def handler():
        act(scene, what)
        if isinstance(end, Exception):
            raise end
        return end

    scene.ends = [handler]
    scene.live("1s")

    assert State.CANCELLED == scene.app.job(1).state
    assert [] == scene.news
    expected = {"update": [1, 1], "trigger": [1, 1], "untrack": [1]}[what]
    assert expected == [number for _, number in scene.began]


@pytest.mark.parametrize("what", ["update", "trigger", "untrack"])
def test_an_operators_action_makes_an_awaited_answer_stale(scene: RefreshScenario, what: str):
    """After an operator's action the token of a waiting attempt is refused."""
    scene.ends = [Pending("1h")]
    scene.live("5m")
    act(scene, what)

    for answer in (lambda token: scene.app.complete(token, 7), lambda token: scene.app.fail(token, GiveUp("no"))):
        with pytest.raises(LeaseLost):
            answer(scene.tokens[0])
    assert [] == scene.news


def test_a_pause_lets_running_attempts_finish(scene: RefreshScenario):
    """Its success counts; nothing follows before the pause ends."""
    scene.ends = [lambda: scene.table.pause("k") or 1]
    scene.live("5h")

    assert (1, 0, True) == (len(scene.began), scene.row().attempt_no, scene.row().paused)


def test_new_arguments_are_those_of_the_next_attempt(scene: RefreshScenario):
    """Attempts that wait for a worker keep the arguments with which they were started."""
    scene.app.queue("default").pause()
    scene.live("1s")
    scene.table.track("k", "b")
    scene.app.queue("default").resume()
    scene.live("2h")

    assert ["a", "b"] == scene.urls


# ----------------------------------------------------------------------------------------------------------- deploying


def redeploy(scene: RefreshScenario, policy: str) -> None:
    """Start the program again with another policy, for the same items in the same database."""
    scene.table.refresh_policy = RefreshPolicy.parse(policy)


def test_a_changed_refresh_policy_replans_items_without_their_own_policy(scene: RefreshScenario):
    """After a deployment, items follow the new policy unless they have their own."""
    scene.table.keeping(policy="Refresh every 3 hours; allow 10 minutes", at_once=False).track("own", "a")
    scene.live("1m")
    redeploy(scene, "Refresh every hour; allow 10 minutes")
    scene.live("1s")

    assert ["15:00", "15:00"] == [f"{scene.table.get(key).refresh_at:%H:%M}" for key in ("k", "own")]
    scene.live("1h")
    assert ["16:00", "18:00"] == [f"{scene.table.get(key).refresh_at:%H:%M}" for key in ("k", "own")]


def test_a_retry_keeps_its_time_when_the_policy_changes(scene: RefreshScenario):
    """Planned retries keep their time; the new policy decides from their end on."""
    scene.ends = [RetryAfter("30m"), ValueError("no")]
    scene.live("1m")
    redeploy(scene, "Refresh every hour; allow 10 minutes; on the first failure, retry after 2 minutes")
    scene.live("1h")

    assert [("14:00:00", 1), ("14:30:00", 2)] == scene.began
    assert "Cannot refresh after 2 attempt(s)" == scene.row().disabled_reason


# -------------------------------------------------------------------------------------------------------- who is told


@pytest.mark.parametrize("told", [lambda: None, lambda news: None, lambda a, b: None], ids=["none", "untyped", "two"])
def test_an_on_disabled_task_with_another_signature_is_refused(app: App, told):
    """Another signature is found at the start, with what it has and what it should have."""
    app.task(name="told")(told)
    app.refresh(EVERY, on_disabled="told", name="table")(lambda: None)

    with pytest.raises(TaskDefinitionError, match=r"on_disabled='told' must take exactly one redrive\.Disabled"):
        app.check()


def test_the_on_disabled_task_has_its_own_retries(app: App, clock: VirtualClock):
    """It is a task like any other: its queue, its priority and its policy count, and its parameter has any name."""
    failing, heard = [ValueError("no mail")] * 2, []

    @app.task(retry="2 1m", queue="mail", priority=-1)
    async def write_letter(what_happened: Disabled, ctx: Context) -> None:
        """Fail twice."""
        if failing:
            raise failing.pop()
        heard.append((what_happened.key, ctx.attempt))

    @app.refresh(EVERY, on_disabled=write_letter)
    async def table() -> None:
        """Give up."""
        raise GiveUp("no")

    table.track("k")
    drain(app, within="1h")

    (letter,) = [job for job in app.jobs.select() if job.task == "write_letter"]
    assert ([("k", 3)], "mail", -1) == (heard, letter.queue, letter.priority)


def test_without_on_disabled_the_reason_is_in_the_row(app: App):
    """Without `on_disabled`, the reason is in the row only."""

    @app.refresh(EVERY)
    def table() -> None:
        """Give up."""
        raise GiveUp

    table.track("k")
    drain(app, within="1h")

    assert ("gave up", 1) == (table.get("k").disabled_reason, len(app.jobs.select()))


def test_the_job_of_an_attempt_has_no_retries_of_its_own(scene: RefreshScenario):
    """Jobs of attempts have no retries of their own, and the timeout of the refresh policy."""
    scene.live("1s")
    (job,) = scene.app.jobs.select()

    assert Policy(attempts=1, attempt_timeout="10m", idempotent=True) == job.policy
