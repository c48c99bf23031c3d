"""Tracking items of refreshes, and acting on them, in both colours."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Context, Disabled, Refresh, RefreshPolicy
from redrive.engine.recurring import read_policy
from redrive.errors import (
    ConfigurationError,
    NotTracked,
    PayloadError,
    ScheduleError,
    ScheduleNotFound,
    ScheduleSyntaxError,
    TaskDefinitionError,
)
from redrive.policy import parse_duration
from redrive.testing import VirtualClock, drain

NOON = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
EVERY = "Refresh every 2 hours; allow 10 minutes; on the first failure, retry after 1 minute"
HOURLY = "Refresh every hour; allow 5 minutes"


@pytest.fixture
def clock():
    """Half a minute after noon."""
    return VirtualClock(NOON)


@pytest.fixture
def ran():
    """Return the records of attempts: the time, the key, and the argument."""
    return []


@pytest.fixture
def table(app: App, clock: VirtualClock, ran: list):
    """Tables that are refreshed every two hours."""

    @app.refresh(EVERY)
    def table(url: str, ctx: Context) -> None:
        """Note that it was run."""
        ran.append((f"{clock.now():%H:%M}", ctx.key, url))
        if url == "broken":
            raise ValueError(url)

    return table


def live(app: App, span: str) -> None:
    """Let so much time pass, in which workers do what is due."""
    end = app.clock.now() + parse_duration(span)
    drain(app, within=span)
    app.clock.advance(end - app.clock.now())


def at(moment: datetime | None) -> str:
    """Return an instant of the day."""
    return "-" if moment is None else f"{moment:%H:%M}"


# ------------------------------------------------------------------------------------------------------------ tracking


def test_a_new_item_is_started_at_once_and_then_as_planned(app: App, table: Refresh, ran: list):
    """Its first attempt does not wait for the schedule; after it the schedule rules."""
    assert table.track("k", "a")
    live(app, "4h")

    assert [("12:00", "k", "a"), ("14:00", "k", "a"), ("16:00", "k", "a")] == ran


def test_a_new_item_may_wait_for_its_first_planned_refresh(app: App, table: Refresh, ran: list):
    """With at_once=False nothing is started before that."""
    table.keeping(at_once=False).track("k", "a")
    live(app, "2h")

    assert [("14:00", "k", "a")] == ran


def test_tracking_again_changes_the_arguments_and_starts_nothing(app: App, table: Refresh, ran: list):
    """After a second track(), the next attempt has the new arguments; nothing is started."""
    table.track("k", "a")
    live(app, "1m")

    assert not table.track("k", "b")
    live(app, "2h")

    assert [("12:00", "k", "a"), ("14:00", "k", "b")] == ran


def test_tracking_again_changes_the_policy(app: App, table: Refresh):
    """With a policy of its own the plan is made anew; without one it follows that of the refresh again."""
    table.track("k", "a")
    live(app, "1m")
    table.keeping(policy=HOURLY).track("k", "a")
    own = table.get("k")
    table.track("k", "a")
    back = table.get("k")

    assert ("13:00", RefreshPolicy.parse(HOURLY)) == (at(own.refresh_at), read_policy(own.own or ""))
    assert ("14:00", None) == (at(back.refresh_at), back.own)


@pytest.mark.parametrize("policy", [HOURLY, RefreshPolicy.parse(HOURLY)], ids=["text", "value"])
def test_an_item_may_have_its_own_policy(app: App, table: Refresh, ran: list, policy: str | RefreshPolicy):
    """Its schedule and its timeout count, and not those of the refresh."""
    table.keeping(policy=policy).track("k", "a")
    live(app, "1h")

    assert ["12:00", "13:00"] == [when for when, *_ in ran]
    assert {timedelta(minutes=5)} == {job.policy.attempt_timeout for job in app.jobs.select()}


def test_a_policy_that_is_not_understood_is_refused_with_its_place(app: App, table: Refresh):
    """Invalid policies are refused with the line and the column; nothing is tracked."""
    with pytest.raises(ScheduleSyntaxError, match="line 2, column 1"):
        table.keeping(policy="Refresh every hour\nHope for the best").track("k", "a")
    with pytest.raises(ScheduleSyntaxError, match="line 1, column 1"):
        app.refresh("Whenever you like")(lambda: None)
    with pytest.raises(ScheduleError):
        table.keeping(policy="Refresh every month at a bare 6").track("k", "a")

    assert () == table.tracked()


def test_many_items_are_tracked_together(app: App, table: Refresh, ran: list):
    """``track_many`` returns the new keys; of a repeated key the last arguments count."""
    table.track("b", "old")
    new = table.track_many([("a", "1"), ("b", "2"), ("c", "3"), ("c", "4")])
    live(app, "1m")

    assert {"a", "c"} == new
    assert [("a", "1"), ("b", "old"), ("c", "4")] == sorted((key, url) for _, key, url in ran)
    assert frozenset() == table.track_many([])


def test_one_invalid_item_of_many_tracks_none(table: Refresh):
    """Arguments that do not fit and keys that name nothing are found before anything is written."""
    with pytest.raises(PayloadError, match="Expected `str`, got `int`"):
        table.track_many([("a", "1"), ("b", 2)])
    with pytest.raises(ConfigurationError, match="is invalid: a key is a text"):
        table.track_many([("a", "1"), ("", "2")])

    assert () == table.tracked()


@pytest.mark.parametrize("key", ["Ключ № 7", "a/b/c", "a:b/c", "refresh:table/k", "x" * 2000, " ", "a\nb", "🙂"])
def test_any_text_can_be_a_key(app: App, table: Refresh, ran: list, key: str):
    """Keys may be any text: the handler gets it unchanged, and every method finds the item."""
    table.track(key, "a")
    live(app, "1m")

    assert [key] == [found for _, found, _ in ran]
    assert (key, 0) == (table.get(key).key, table.get(key).attempt_no)
    assert table.untrack(key)


@pytest.mark.parametrize(
    "key",
    ["", "zero\0byte", "ї" * 1001, "\ud800", 7, b"seven", None],
    ids=["empty", "zero byte", "long", "half a character", "number", "bytes", "None"],
)
def test_an_empty_key_is_refused_by_every_method(table: Refresh, key: Any):
    """Invalid keys are refused by every method with the same message."""
    methods = [table.get, table.untrack, table.update, table.trigger]
    of_one = [table.pause, table.resume] if key is not None else []  # they mean the refresh as a whole then
    for method in [*methods, *of_one, lambda key: table.track(key, "a")]:
        with pytest.raises(ConfigurationError, match="a key is a text that is not empty, has no zero byte, and"):
            method(key)


def test_an_item_that_is_not_tracked_is_not_found(table: Refresh):
    """Before anything was tracked, and after; untrack alone asks no questions."""
    for _ in range(2):
        for method in (table.get, table.update, table.trigger, table.pause, table.resume):
            with pytest.raises(NotTracked, match=r"'missing'|no refresh 'table'"):
                method("missing")
        assert not table.untrack("missing")
        table.track("there", "a")


def test_an_untracked_item_is_not_refreshed(app: App, table: Refresh, ran: list):
    """Untracked items are not refreshed any more; only their ended jobs remain."""
    table.track("k", "a")
    live(app, "1m")

    assert table.untrack("k")
    assert not table.untrack("k")
    live(app, "1d")
    assert 1 == len(ran)


def test_an_untracked_item_may_be_tracked_again(app: App, table: Refresh, ran: list):
    """It is new then: started at once, with nothing counted."""
    table.track("k", "broken")
    live(app, "30s")
    table.untrack("k")

    assert table.track("k", "a")
    assert 1 == table.get("k").attempt_no
    live(app, "1m")
    assert ["broken", "a"] == [url for *_, url in ran]


# -------------------------------------------------------------------------------------------------------------- people


def test_an_update_resets_the_item_and_starts_it(app: App, table: Refresh, ran: list):
    """Whatever was counted is forgotten, and an attempt is made at once."""
    table.track("k", "broken")
    live(app, "30s")
    table.track("k", "a")
    turned = table.update("k")

    assert ("started", table.get("k").job_id) == (turned.outcome, turned.job_id)
    assert 1 == table.get("k").attempt_no
    live(app, "1m")
    assert ["broken", "a"] == [url for *_, url in ran]


def test_an_update_may_wait_for_the_schedule(app: App, table: Refresh, ran: list):
    """It is enabled, and the next planned refresh is its first."""
    table.track("k", "broken")
    live(app, "30s")
    turned = table.update("k", at_once=False)

    assert ("enabled", None, "14:00") == (turned.outcome, turned.job_id, at(table.get("k").refresh_at))
    assert 1 == len(ran)


def test_a_trigger_starts_now(app: App, table: Refresh, ran: list):
    """Due or not; the schedule goes on as it was."""
    table.track("k", "a")
    live(app, "1h")
    turned = table.trigger("k", actor="anna")
    live(app, "2h")

    assert "started" == turned.outcome
    assert ["12:00", "13:00", "14:00"] == [when for when, *_ in ran]
    (line,) = app.database.audit()
    assert ("anna", "trigger") == (line.actor, line.action)
    assert {"schedule": "table", "key": "k", "ids": [turned.job_id]} == json.loads(line.details)


def test_a_paused_item_is_not_started_until_it_is_resumed(app: App, table: Refresh, ran: list):
    """Refreshes that were planned during a pause are skipped, and the next planned one starts."""
    table.track_many([("k", "a"), ("other", "b")])
    live(app, "1m")
    ran.clear()
    table.pause("k")
    live(app, "3h")

    assert (True, [("14:00", "other", "b")]) == (table.get("k").paused, ran)
    table.resume("k")
    assert (False, "16:00") == (table.get("k").paused, at(table.get("k").refresh_at))


def test_a_retry_that_became_due_during_a_pause_is_made(app: App, table: Refresh, ran: list):
    """It was decided before, and nothing plans it again."""
    table.track("k", "broken")
    live(app, "30s")
    table.pause("k")
    live(app, "30m")
    table.resume("k")
    live(app, "1s")

    assert ["12:00", "12:31"] == [when for when, *_ in ran]


def test_an_item_updated_during_a_pause_starts_when_it_ends(app: App, table: Refresh, ran: list):
    """Items that were updated during a pause start when it ends."""
    table.track("k", "a")
    live(app, "30s")
    table.pause("k")
    assert "enabled" == table.update("k").outcome
    live(app, "30m")
    table.resume("k")
    live(app, "1s")

    assert ["12:00", "12:31"] == [when for when, *_ in ran]


def test_a_paused_refresh_starts_nothing(app: App, table: Refresh, ran: list):
    """Items that are tracked during a pause start when it ends; planned refreshes are skipped."""
    table.track("k", "a")
    live(app, "1m")
    table.pause()
    table.track("new", "b")
    live(app, "3h")
    assert [("12:00", "k", "a")] == ran

    table.resume()
    live(app, "1h")

    assert [("15:01", "new", "b"), ("16:00", "k", "a"), ("16:00", "new", "b")] == [ran[1], *sorted(ran[2:])]


def test_a_trigger_overrides_a_pause(app: App, table: Refresh, ran: list):
    """Triggers override the pause of the item and of the refresh."""
    table.track("k", "a")
    live(app, "1m")
    table.pause("k")
    table.pause()
    table.trigger("k")
    live(app, "1m")

    assert ["12:00", "12:01"] == [when for when, *_ in ran]


def test_an_unknown_refresh_cannot_be_paused(table: Refresh):
    """It is known when something is tracked, or when a worker has started."""
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'table'"):
        table.pause()
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'table'"):
        table.resume()


def test_pauses_and_resumes_are_audited(app: App, table: Refresh):
    """Pauses and resumes are in the audit log with their actor."""
    table.track("k", "a")
    table.pause("k", actor="anna")
    table.resume("k", actor="berta")
    table.pause(actor="anna")
    table.resume(actor="berta")

    assert [("anna", "pause"), ("berta", "resume")] * 2 == [(each.actor, each.action) for each in app.database.audit()][
        ::-1
    ]


# ------------------------------------------------------------------------------------------------------------- looking


def test_items_are_listed_by_their_keys_in_pages(table: Refresh):
    """Pages continue after the last key of the previous one."""
    table.track_many([(key, "a") for key in "dbca"])
    page = table.tracked(limit=3)

    assert ["a", "b", "c"] == [each.key for each in page]
    assert ["d"] == [each.key for each in table.tracked(after=page[-1].key)]


def test_troubled_items_can_be_listed_separately(app: App, table: Refresh):
    """``troubled`` lists only items that fail or were given up."""
    table.track_many([("fine", "a"), ("given up", "broken")])
    live(app, "5m")
    table.track("failing", "broken")
    live(app, "10s")

    assert ["failing", "given up"] == [each.key for each in table.tracked(troubled=True)]
    (counts,) = app.refreshes.counts()
    assert (3, 0, 1, 1) == (counts.tracked, counts.running, counts.failing, counts.disabled)


def test_every_method_has_a_form_for_coroutines(app: App, table: Refresh, ran: list):
    """They do and answer the same."""

    async def all_of_them() -> list:
        """Call each once."""
        done = [await table.atrack("k", "a"), await table.keeping(at_once=False).atrack("m", "a")]
        done.append(await table.atrack_many([("n", "a"), ("k", "a")]))
        done.append(await table.keeping(policy=HOURLY).atrack_many([("o", "a")]))
        done.append((await table.aupdate("k")).outcome)
        done.append((await table.atrigger("k", actor="anna")).outcome)
        await table.apause("k")
        done.append((await table.aget("k")).paused)
        await table.aresume("k")
        await table.apause()
        await table.aresume()
        done.append([each.key for each in await table.atracked(after="k", limit=2)])
        done.append(await table.auntrack("m"))
        return done

    expected = [True, True, {"n"}, {"o"}, "started", "started", True, ["m", "n"], True]
    assert expected == asyncio.run(all_of_them())


# --------------------------------------------------------------------------------------------------------- definitions


def test_a_refresh_is_still_the_function(app: App, table: Refresh, ran: list):
    """Calls run the function here and now; an enqueued job is no attempt at an item."""
    job = app.refresh(EVERY, name="double")(lambda number: 2 * number).enqueue(21)
    live(app, "1s")

    assert (42, None, ()) == (job.result(), job.refresh().record.origin, app.tasks["double"].tracked())


def test_on_disabled_may_name_a_task_before_it_is_declared(app: App):
    """By name or as the task itself."""

    def report_disabled(news: Disabled, ctx: Context) -> None:
        """Take the news."""

    by_name = app.refresh(EVERY, on_disabled="report_disabled", name="one")(lambda: None)
    task = app.task(report_disabled)
    by_task = app.refresh(EVERY, on_disabled=task, name="two")(lambda: None)
    app.check()

    assert by_name.definition.on_disabled == by_task.definition.on_disabled


def test_an_unknown_on_disabled_task_is_refused(app: App):
    """Unknown tasks of ``on_disabled`` are found before an item is tracked."""
    refresh = app.refresh(EVERY, on_disabled="nobody", name="table")(lambda: None)

    with pytest.raises(TaskDefinitionError, match="refresh 'table': on_disabled='nobody', but there is no such task"):
        app.check()
    with pytest.raises(TaskDefinitionError, match="on_disabled='nobody'"):
        refresh.track("k")


@pytest.mark.usefixtures("table")
def test_a_drain_of_planned_refreshes_is_bounded(app: App):
    """Drains of planned refreshes need a bound, because they do not end."""
    with pytest.raises(ConfigurationError, match="would never end: limit it by within="):
        drain(app)


def test_a_drain_of_a_refresh_without_a_schedule_ends(app: App, ran: list):
    """Drains of refreshes without a schedule end after the retry."""

    @app.refresh("Allow 1 minute; on the first failure, retry after 1 hour")
    def thumbnail(ctx: Context) -> None:
        """Fail once."""
        ran.append(ctx.key)
        if len(ran) == 1:
            raise ValueError("no")

    thumbnail.track("k")

    assert (2, timedelta(hours=1)) == ((done := drain(app)).attempts, done.took)


def test_a_refresh_without_a_policy_is_refused(app: App):
    """Decorators without parentheses are refused with the correct form."""
    with pytest.raises(TaskDefinitionError, match=r'table: write @app.refresh\("Refresh every 2 hours"\)$'):

        @app.refresh
        def table() -> None: ...


def test_a_refresh_without_future_occurrences_is_a_warning(app: App):
    """It is made, and can still be started by hand."""
    with pytest.warns(RuntimeWarning, match="refresh 'table' has no occurrence any more"):

        @app.refresh('Refresh by rule "FREQ=DAILY;UNTIL=20260301T000000Z"')
        def table() -> None: ...

    assert table is app.tasks["table"]
