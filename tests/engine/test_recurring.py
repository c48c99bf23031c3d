"""What recurs, as documents that the database keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.engine.frozen import freeze
from redrive.engine.origin import Kind
from redrive.engine.recurring import (
    CatchUp,
    CronDefinition,
    JobTemplate,
    Overlap,
    RefreshDefinition,
    ScheduleRecord,
    policy_document,
    read,
    read_policy,
)
from redrive.errors import ScheduleError
from redrive.schedule import Action, GiveUpSince, RefreshPolicy, Schedule, Strategy
from tests.engine.helpers import T0, policy

SPANS = st.timedeltas(timedelta(seconds=1), timedelta(days=400))
MADE = st.builds(
    JobTemplate,
    task=st.text(min_size=1),
    queue=st.text(min_size=1),
    priority=st.integers(-(2**31), 2**31 - 1),
    policy=st.sampled_from(["0", "5 1s 1m", "3 2s catch mend"]).map(lambda directive: freeze(policy(directive))),
    parameter=st.text(),
)
CRONS = st.builds(
    CronDefinition,
    name=st.text(min_size=1),
    pattern=st.sampled_from(["*/5 * * * *", "@daily", "0 0 9 * * MON-FRI", "30s"]),
    tz=st.sampled_from(["UTC", "Europe/Kyiv", "America/New_York"]),
    overlap=st.sampled_from(Overlap),
    catch_up=st.sampled_from(CatchUp),
    window=SPANS,
    job=MADE,
)
Strategy.register("always in a test", lambda retry_at, planned_at, failures: Strategy.ALIGN)
REFRESHES = st.builds(
    RefreshDefinition,
    name=st.text(min_size=1),
    policy=st.builds(
        RefreshPolicy,
        schedule=st.sampled_from([None, Schedule.cron("*/5 * * * *", tz="Europe/Kyiv")]),
        timeout=SPANS,
        delays=st.lists(SPANS, max_size=3).map(tuple),
        strategy=st.sampled_from([*Strategy, "always in a test"]),
        give_up_after=SPANS,
        give_up_since=st.sampled_from(GiveUpSince),
        on_give_up=st.sampled_from([(), (Action("email", "customer"),)]),
    ),
    job=MADE,
    on_disabled=st.none() | MADE,
)

CRON = CronDefinition(
    "nightly",
    "0 3 * * *",
    "Europe/Kyiv",
    Overlap.SKIP,
    CatchUp.ONE,
    timedelta(days=1),
    JobTemplate("do", "mail", 0, freeze(policy())),
)
REFRESH = RefreshDefinition("fresh", RefreshPolicy(), CRON.job)


@given(CRONS | REFRESHES)
def test_a_definition_is_read_back(definition: CronDefinition | RefreshDefinition):
    """Documents contain all of a definition but its name, and so does the digest of its timing."""
    found = read(definition.name, definition.kind, definition.document)

    assert definition == found
    assert definition.timing == found.timing


def test_definitions_have_their_kind():
    """Crons and refreshes return their kind."""
    assert [Kind.CRON, Kind.REFRESH] == [CRON.kind, REFRESH.kind]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (Kind.CRON, "{"),
        (Kind.CRON, "{}"),
        (Kind.CRON, REFRESH.document),
        (Kind.REFRESH, CRON.document),
        (Kind.CRON, CRON.document.replace("0 3 * * *", "0 3 31 2 *")),
        (Kind.CRON, CRON.document.replace("Europe/Kyiv", "Europe/Atlantis")),
        (Kind.CRON, CRON.document.replace('"skip"', '"discard"')),
        (Kind.CRON, CRON.document.replace('"attempts"', '"tries"')),
        (Kind.REFRESH, REFRESH.document.replace('"give_up_after"', '"patience"')),
        (Kind.REFRESH, REFRESH.document.replace('"version":1', '"version":2')),
    ],
)
def test_a_definition_of_a_newer_redrive_is_none(kind: Kind, document: str):
    """Documents that cannot be decoded are no definition, and raise no error."""
    row = ScheduleRecord("nightly", kind, document, "t", T0, None, None, None, None, None)

    assert None is row.definition


def test_a_row_has_the_definition_of_its_document():
    """Definitions of a row are those of its document, under its name."""
    row = ScheduleRecord("other", Kind.CRON, CRON.document, CRON.timing, T0, None, None, None, None, None)

    assert replace(CRON, name="other") == row.definition


def test_the_timing_contains_only_pattern_and_time_zone():
    """Another pattern or place is another timing; other jobs, overlaps and windows are not."""
    when = [replace(CRON, pattern="0 4 * * *"), replace(CRON, tz="UTC")]
    what = [replace(CRON, overlap=Overlap.ALLOW), replace(CRON, job=replace(CRON.job, queue="slow"))]

    assert 3 == len({CRON.timing, *(each.timing for each in when)})
    assert {CRON.timing} == {each.timing for each in what}
    assert REFRESH.timing == replace(REFRESH, on_disabled=CRON.job).timing
    assert REFRESH.timing != replace(REFRESH, policy=RefreshPolicy(timeout=timedelta(hours=1))).timing


def test_a_cron_that_cannot_occur_is_refused():
    """Crons are checked when they are declared, not when they fire."""
    assert CRON is CRON.checked()
    with pytest.raises(ScheduleError):
        replace(CRON, pattern="61 * * * *").checked()


JITTERED = replace(CRON, pattern="every 90 minutes", jitter=timedelta(minutes=30))


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_jitter_of_an_occurrence_is_bounded_and_the_same_in_every_process(occurs_at: datetime):
    """A job is due at its occurrence or later by less than the jitter."""
    start = JITTERED.starts_at(occurs_at)

    assert occurs_at <= start < occurs_at + JITTERED.jitter
    assert start == read("nightly", Kind.CRON, JITTERED.document).starts_at(occurs_at)  # type: ignore[union-attr]
    assert occurs_at == CRON.starts_at(occurs_at)


def test_the_jitter_spreads_the_occurrences_and_the_crons():
    """The starts of one cron fill the jitter, and another cron starts at other instants."""
    occurrences = [T0 + number * timedelta(minutes=90) for number in range(400)]
    own = [JITTERED.starts_at(each) - each for each in occurrences]
    other = [replace(JITTERED, name="other").starts_at(each) - each for each in occurrences]

    assert all(150 < sum(each < half for each in own) < 250 for half in [timedelta(minutes=15)])
    assert min(own) < timedelta(minutes=1)
    assert timedelta(minutes=29) < max(own)
    assert not {*own} & {*other}


def test_the_jitter_of_a_known_occurrence_does_not_change():
    """The delay is a part of what several versions of redrive have to agree on."""
    assert timedelta(minutes=4, seconds=29, microseconds=189611) == JITTERED.starts_at(T0) - T0


@pytest.mark.parametrize(
    ("pattern", "tz", "minutes", "is_valid"),
    [
        ("every 90 minutes", "Europe/Kyiv", 89, True),
        ("every 90 minutes", "UTC", 90, False),
        ("*/5 9 * * *", "UTC", 5, False),
        ("0 0 12 1 1 * 2027", "UTC", 900, True),
        ("0 2,4 * * *", "UTC", 119, True),
        ("0 2,4 * * *", "Europe/Kyiv", 59, True),
        ("0 2,4 * * *", "Europe/Kyiv", 60, False),
        ("0 2,4 29 3 *", "Europe/Kyiv", 60, False),
        ("0 4,8 * * *", "Europe/Kyiv", 239, True),
        ("0,20,40 1,2,3 * * *", "Australia/Lord_Howe", 9, True),
        ("0,20,40 1,2,3 * * *", "Australia/Lord_Howe", 10, False),
        ("0 12 * * SUN", "America/Santiago", 7 * 24 * 60 - 61, True),
        ("0 12 * * MON", "America/Santiago", 7 * 24 * 60 - 60, False),
        ("*/10 * * * *", "Europe/Kyiv", 9, True),
        ("0-59/10 0-23 * * *", "Europe/Kyiv", 9, True),
    ],
)
def test_the_jitter_is_shorter_than_the_time_between_two_occurrences(
    pattern: str, tz: str, minutes: int, is_valid: bool
):
    """Otherwise the job of an occurrence could start after the next one, also when clocks are changed."""
    definition = replace(CRON, pattern=pattern, tz=tz, jitter=timedelta(minutes=minutes))

    if is_valid:
        assert definition == definition.checked()
    else:
        with pytest.raises(ScheduleError, match=r"jitter=.*: two occurrences are only .* apart"):
            definition.checked()


def test_a_policy_is_read_once():
    """Equal documents are decoded to the same value, so that a million items with one policy share it."""
    policy = RefreshPolicy(
        timeout=timedelta(minutes=3), on_give_up=(Action("email", "ops", "no; give up after 1 second"),)
    )
    text = policy_document(policy)

    assert read_policy(text) is read_policy(text)
    assert policy == read_policy(text)
    with pytest.raises(ScheduleError, match="the stored policy is not JSON"):
        read_policy("whenever it suits")


def test_equal_policies_have_one_document_and_one_timing():
    """Declaring an equal policy as sentences or as a value changes neither document nor timing."""
    parsed = RefreshPolicy.parse("Allow 3 minutes to complete; retry after 1 minute")
    made = RefreshPolicy(timeout=timedelta(minutes=3), delays=(timedelta(minutes=1),))
    one, other = (replace(REFRESH, policy=each) for each in (parsed, made))

    assert (policy_document(parsed), one.timing, one.document) == (policy_document(made), other.timing, other.document)
    assert one.timing != replace(REFRESH, policy=RefreshPolicy(timeout=timedelta(minutes=3))).timing


def test_a_definition_describes_its_jobs_and_what_is_started_late():
    """The texts of pages and commands have the task, its queue and policy, and the missed occurrences."""
    made = JobTemplate("send", "mail", 5, freeze(policy("0")))
    week = replace(CRON, window=timedelta(days=7))
    late = [replace(week, catch_up=each).started_late for each in (CatchUp.ALL, CatchUp.ONE, CatchUp.NONE)]

    assert f"send on mail, priority 5; {policy('0').explain()}" == made.described
    assert ["all within 7d", "one", "none"] == late
