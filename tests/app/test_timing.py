"""The options for the start of a job, and its tags."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from redrive import App, CatchRequest, observe
from redrive.engine.records import Filter
from redrive.errors import ConfigurationError, JobCancelled, PolicyError, PolicySyntaxError
from redrive.policy.duration import LONGEST_WAIT
from redrive.testing import VirtualClock, drain


@pytest.fixture
def ran() -> list[str]:
    """Return the list to which the handlers append."""
    return []


@pytest.fixture
def send(app: App, ran: list[str]):
    """Return a task."""

    @app.task(retry="1 1s catch mend")
    def send(text: str) -> str:
        """Note that it has run."""
        ran.append(text)
        return text

    @app.task
    def mend(request: CatchRequest[Any]) -> None:
        """Note that a job was caught."""
        ran.append("caught")

    return send


def test_a_job_is_due_at_an_instant(app: App, clock: VirtualClock, send, ran: list[str]):
    """``at=`` sets the due time, in any time zone."""
    at = clock.now() + timedelta(hours=1)
    job = send.options(at=at.astimezone(timezone(timedelta(hours=5)))).enqueue("later")

    assert (at, UTC, "delay") == (job.record.scheduled_at, job.record.scheduled_at.tzinfo, job.record.hold)
    assert 0 == drain(app, within="59m").attempts
    assert 1 == drain(app).attempts
    assert at == job.refresh().record.started_at
    assert ["later"] == ran


def test_an_instant_in_the_past_means_now(app: App, clock: VirtualClock, send):
    """Jobs due in the past are due at the instant of their enqueue: they take no turn before earlier jobs."""
    record = send.options(at=clock.now() - timedelta(days=9)).enqueue("now").record

    assert (clock.now(), None) == (record.scheduled_at, record.hold)


def test_a_later_option_replaces_the_due_time(clock: VirtualClock, send):
    """``delay=`` after ``at=`` counts, and the other way round."""
    at = clock.now() + timedelta(hours=1)

    delayed = send.options(at=at).options(delay="5m").enqueue("a")
    dated = send.options(delay="5m").options(at=at).enqueue("b")
    assert [timedelta(minutes=5), timedelta(hours=1)] == [
        job.record.scheduled_at - clock.now() for job in (delayed, dated)
    ]


def test_the_event_of_an_enqueue_has_the_delay(clock: VirtualClock, send):
    """Listeners see how long a job with an absolute due time waits."""
    events: list[observe.Event] = []
    with observe.only(events.append):
        send.options(at=clock.now() + timedelta(hours=1)).enqueue("a")

    assert [timedelta(hours=1)] == [each.delay for each in events if isinstance(each, observe.JobEnqueued)]


def test_many_jobs_are_enqueued_with_an_expiry_and_tags(app: App, clock: VirtualClock, send):
    """``enqueue_many`` gives each job the expiry and the tags."""
    jobs = send.options(expires="5m", tags=("b", "a", "b")).enqueue_many(["1", "2"])

    assert [(clock.now() + timedelta(minutes=5), ("a", "b"))] * 2 == [(job.record.expires_at, job.tags) for job in jobs]
    assert ("a", "b") == asyncio.run(jobs[0].atags())
    assert [2, 1] == [record.id for record in app.jobs.select(Filter(tag="a"))]


def test_tags_of_one_text(send):
    """Single texts are one tag, and later options replace the tags."""
    tagged = send.options(tags="blue")

    assert ("blue",) == tagged.enqueue("1").tags
    assert ("red",) == tagged.options(tags=["red"]).enqueue("2").tags
    assert () == send.enqueue("3").tags


def test_an_expired_job_is_cancelled_and_not_caught(app: App, clock: VirtualClock, send, ran: list[str]):
    """Jobs that could not start in time end as cancelled; neither handler nor catch task runs."""
    job = send.options(expires="5m").enqueue("late")
    clock.advance("5m")
    events: list[observe.Event] = []
    with observe.only(events.append):
        drain(app)

    assert ("cancelled", "EXPIRED", "cancelled: it had not started when it expired") == (
        job.refresh().state, job.record.reason, job.why,
    )  # fmt: skip
    assert [] == ran
    assert ["it had not started when it expired"] == [
        each.why for each in events if isinstance(each, observe.JobCancelled)
    ]
    with pytest.raises(JobCancelled, match="it had not started when it expired"):
        job.result()


def test_an_expiry_may_be_an_instant(app: App, clock: VirtualClock, send, ran: list[str]):
    """Jobs that start before the instant run, and others do not."""
    until = clock.now() + timedelta(minutes=5)
    calls = send.options(expires=until)
    calls.enqueue("in time")
    calls.options(delay="10m").enqueue("late")
    drain(app)

    assert ["in time"] == ran


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": datetime(2026, 1, 1)}, r"send: at=datetime.datetime\(2026, 1, 1, 0, 0\) has no time zone: add one"),  # noqa: DTZ001
        (
            {"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
            "send: at=.* is outside of the years 1 to 9999",
        ),
        (
            {"at": datetime(3026, 1, 1, tzinfo=UTC)},
            r"^send: at: 3026-01-01 00:00:00\+00:00 is more than 50 years away, which is the longest wait; were",
        ),
        ({"expires": datetime(3026, 1, 1, tzinfo=UTC)}, "send: expires: 3026-01-01 .* is more than 50 years away"),
        (
            {"delay": 1_790_000_000},
            "^send: delay: 1790000000 is more than 50 years, which is the longest wait; a number counts seconds from",
        ),
        ({"delay": timedelta(days=365_000)}, "send: delay: .* is more than 50 years"),
        ({"delay": "400000d"}, "send: delay: '400000d' is more than 50 years"),
        ({"expires": 1e12}, r"send: expires: 1000000000000.0 is more than 50 years"),
        ({"at": "5m"}, "send: at= is a datetime, got '5m'; a time from now on is delay="),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 1}, "give one of them, for both set the due time"),
        ({"expires": datetime(2026, 1, 1)}, "send: expires=datetime.*has no time zone"),  # noqa: DTZ001
        ({"expires": datetime(2020, 1, 1, tzinfo=UTC)}, "send: expires=2020-01-01 .* lies in the past: the job would"),
        ({"expires": 0}, "send: expires=0 leaves no time to start: give a longer one"),
        ({"expires": "1m", "delay": "2m"}, r"the job would expire \(0:01:00\) before it is due \(0:02:00\)"),
        (
            {"expires": datetime(2026, 1, 1, 18, tzinfo=UTC), "at": datetime(2026, 1, 2, tzinfo=UTC)},
            r"the job would expire \(2026-01-01 .*\) before it is due \(2026-01-02 ",
        ),
        ({"tags": [""]}, "send: a tag is a text that is not empty, got ''"),
        ({"tags": 7}, r"send: tags are a text or several, such as \['spring'\], got 7"),
        ({"tags": {"a": "b"}}, r"send: tags are a text or several, such as \['spring'\], got \{'a': 'b'\}"),
        ({"tags": [7]}, "send: a tag is a text that is not empty, got 7"),
    ],
)
def test_wrong_options_are_refused(send, options: dict[str, Any], message: str):
    """Options without sense are refused with the name of the task, before anything is stored."""
    with pytest.raises(ConfigurationError, match=message):
        send.options(**options)


def test_an_expiry_that_cannot_be_read_is_refused(send):
    """Texts that are no time span are refused with a caret."""
    with pytest.raises(PolicySyntaxError, match="soon"):
        send.options(expires="soon")


def test_a_debounced_job_has_no_due_time_of_its_own(clock: VirtualClock, send):
    """The last call of a burst sets the due time."""
    calls = send.debounce("key", quiet="1s", at_most="5s")

    with pytest.raises(ConfigurationError, match="send: a debounced job cannot be due at="):
        calls.options(at=clock.now())


def test_the_longest_wait_is_fifty_years(app: App, clock: VirtualClock, send):
    """A job may wait as long as that, and a debounced one no longer."""
    calls = send.options(delay=LONGEST_WAIT)

    assert clock.now() + LONGEST_WAIT == calls.enqueue("a").record.scheduled_at
    assert clock.now() + LONGEST_WAIT == send.options(at=clock.now() + LONGEST_WAIT).enqueue("b").record.scheduled_at
    for quiet, at_most in (("1s", "20000d"), ("20000d", "20000d")):
        with pytest.raises(PolicyError, match="send: (quiet|at_most): '20000d' is more than 50 years"):
            send.debounce("k", quiet=quiet, at_most=at_most)
