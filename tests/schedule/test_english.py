"""Refresh policies in English: what is read, what is refused and where, and that they are written back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ScheduleSyntaxError
from redrive.schedule import Action, CronExpression, Exhausted, Gap, RecurrenceRule, RefreshPolicy, Schedule, Strategy
from redrive.schedule.options import LONGEST

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
START = datetime(2026, 1, 31, 8, 30)  # noqa: DTZ001 - naive is the wall clock


def rules(text: str) -> list[str]:
    """Return the rules of a text."""
    schedule = RefreshPolicy.parse(text).schedule
    return [] if schedule is None else [str(each) for each in schedule.rules]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weekdays at 6:30 AM and 4 PM", ["FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=16;BYMINUTE=0;BYSECOND=0",
                                          "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=6;BYMINUTE=30;BYSECOND=0"]),
        ("once a day at 6 AM", ["FREQ=DAILY;BYHOUR=6;BYMINUTE=0;BYSECOND=0"]),
        ("once per day at midnight", ["FREQ=DAILY;BYHOUR=0;BYMINUTE=0;BYSECOND=0"]),
        ("daily", ["FREQ=DAILY;BYHOUR=0;BYMINUTE=0;BYSECOND=0"]),
        ("every second week on Monday to Wednesday at 9:00",
         ["FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TU,WE;BYHOUR=9;BYMINUTE=0;BYSECOND=0"]),
        ("every 10 seconds", ["FREQ=SECONDLY;INTERVAL=10"]),
        ("every second", ["FREQ=SECONDLY"]),
        ("every 0.5 hours from 10 PM to 2 AM", ["FREQ=MINUTELY;INTERVAL=30;BYHOUR=0,1,22,23"]),
        ("monthly on the last Friday of every month at 5 p.m.",
         ["FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17;BYMINUTE=0;BYSECOND=0"]),
        ("every month on the second Tuesday and the last Friday at noon",
         ["FREQ=MONTHLY;BYDAY=2TU,-1FR;BYHOUR=12;BYMINUTE=0;BYSECOND=0"]),
        ("hourly on Mondays", ["FREQ=HOURLY;BYDAY=MO"]),
        ("Saturday and Sunday at 8:00", ["FREQ=WEEKLY;BYDAY=SA,SU;BYHOUR=8;BYMINUTE=0;BYSECOND=0"]),
        ("every Friday through Monday at 8:00", ["FREQ=WEEKLY;BYDAY=MO,FR,SA,SU;BYHOUR=8;BYMINUTE=0;BYSECOND=0"]),
        ("4 times a day at 0:00, 6:00, 12:00, and at 18:00", ["FREQ=DAILY;BYHOUR=0,6,12,18;BYMINUTE=0;BYSECOND=0"]),
    ],
)  # fmt: skip
def test_when(text: str, expected: list[str]):
    """Sentences about time are rules."""
    assert sorted(expected) == sorted(rules(text))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Timeout is 1 week, 2 days and 3 hours", {"timeout": 9 * DAY + 3 * HOUR}),
        ("The time limit for a refresh process is set to PT1H30M", {"timeout": 90 * MINUTE}),
        ("Allow an hour and a half to finish", {"timeout": 90 * MINUTE}),
        ("Retry after 1 minute, then after 5 minutes, 10 minutes and 1 hour",
         {"delays": (MINUTE, 5 * MINUTE, 10 * MINUTE, HOUR)}),
        ("retry immediately, then at once", {"delays": (timedelta(0), timedelta(0))}),
        ("Retry 2 times", {"delays": (timedelta(0), timedelta(0))}),
        ("Retry twenty times with exponential backoff starting at 1 week",
         {"delays": tuple(min(2**n * 7 * DAY, LONGEST) for n in range(20))}),
        ("On the first to third failures, retry in 5 minutes", {"delays": (5 * MINUTE,) * 3}),
        ("On the first failure, retry immediately\nThen every 2 hours",
         {"delays": (timedelta(0), 2 * HOUR), "repeat_last": True}),
        ("Give up after 3 attempts\nRetry 2 times", {"delays": (timedelta(0), timedelta(0))}),
        ("On the first failure, give up", {}),
        ("But give up", {}),
        ("Give up after the last failed retry:\n  - Notify ops that it is down\n  - Panic",
         {"on_give_up": (Action("notify", "ops", "it is down"), Action("panic"))}),
        ("Send the owner an email that it stopped", {"on_give_up": (Action("email", "owner", "it stopped"),)}),
        ('Mark the row as "stale"', {"on_give_up": (Action("mark", "row", "stale"),)}),
        ("Make a report; start at most 5 minutes late; spread starts over 1 minute",
         {"catch_up": 5 * MINUTE, "jitter": MINUTE}),
        ("Start at most 0 seconds late", {"catch_up": timedelta(0)}),
        ("Retry until success", {"strategy": Strategy.UNTIL_SUCCESS}),
        ("Retry or refresh whichever comes first", {"strategy": Strategy.WHICHEVER_FIRST}),
        ("Retry only at scheduled refreshes", {"strategy": Strategy.PLANNED_ONLY}),
        ("Ignore retries that overlap with the original timing", {}),
        ("Leave out retries that overlap with scheduled refreshes", {}),
        ("Keep the refresh aligned with the original timing", {}),
        ("Make retries even if they overlap with the schedule", {"strategy": Strategy.UNTIL_SUCCESS}),
        ("Count attempts anew at scheduled refreshes", {"strategy": Strategy.UNTIL_PLANNED}),
        ("Retries: 0, 1 minute, 5 minute, PT10M", {"delays": (timedelta(0), MINUTE, 5 * MINUTE, 10 * MINUTE)}),
        ("Retries: 2, 5 minutes apart", {"delays": (5 * MINUTE,) * 2}),
        ("Retries: 0", {}),
        ("Retry policy: do not retry. Give up after 1 day.", {"give_up_after": DAY}),
        ("Retry policy: make at most 1 attempt", {}),
        ("  \n* **Allow** `2 hours` to respond.\n", {"timeout": 2 * HOUR}),
    ],
)  # fmt: skip
def test_what(text: str, fields: dict):
    """Sentences about attempts and their end are fields; lists, quotes and Markdown do not matter."""
    assert RefreshPolicy(**fields) == RefreshPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: not understood: there is nothing"),
        ("Allow", "line 1, column 6: not understood: the end of the line after 'Allow': a span of time belongs here"),
        ("every 2 hours\n  - Panic\nevery blue moon", "line 3, column 7: not understood: 'blue moon'"),
        ("every day at 6", 'it could be in the morning or in the evening; write "6 AM" or "6 PM"'),
        ("every day at 6:75", "'6:75': it is not a time of day"),
        ("every day at 1.5 PM", "'at 1.5 PM': a time has a colon"),
        ("every month at 6:00", "say on which day of the month"),
        ("every month on the 40th of the month", "a month has no day 40"),
        ("every month on the 1st and the last Friday of the month", "not both at once"),
        ("every 2 days on Friday", "days of the week go with weeks"),
        ("every 7 seconds between 9:00 and 10:30", "seconds in a window are counted from full hours"),
        ("every day between 9:00 and 10:00", "a window of hours belongs to minutes or hours"),
        ("every hour on the 1st of the month", "days of the month need a period of a day or longer"),
        ("every 0.3 seconds", "not a whole number of seconds"),
        ("every hour in Europe/Kiew", "'Europe/Kiew' is not a time zone"),
        ("every hour in EST", 'but of an offset; write "in America/New_York" or "in UTC"'),
        ("Refresh evry day", "column 9: not understood: 'evry': did you mean 'every'?"),
        ("Refresh sometimes", "column 9: not understood: 'sometimes': it is missing how often"),
        ("Refresh at 9:00 in EST", "column 20: not understood: 'EST'"),
        ("Foo", "not understood: 'Foo': no sentence of a policy begins so; write \"Refresh every 2 hours\" or"),
        ("on any further failure", "the end of the line after 'on any further failure': what is done"),
        ("every hour starting 2026-02-31", "'2026-02-31' is not a time; write it as"),
        ("every hour starting soon", "'soon': a start is a date with its year"),
        ("every decade", "an interval is a number and a unit of time"),
        ("every month on the 31st of the day", "not understood: 'of the day'"),
        ('Refresh by rule "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"', "never occurs"),
        ("Refresh by rule FREQ", "something in quotes"),
        ("Retry some times", "not understood"),
        ("Retry 1.5 times", "not understood"),
        ("On the second failure, retry at once", "failure 1 is not described, but failure 2 is"),
        ("On the first failure, retry at once; retry 3 times", "retries described twice"),
        ("On any further failure, retry at once; on any further failure, retry at once", "described twice"),
        ("On the first failure, give up; on the second failure, give up", "two last failures"),
        ("On the first failure, sing", "not understood: 'sing'"),
        ("On the first failure:\n  - Sing", "line 2, column 5: not understood: 'Sing'"),
        ("Give up after blue attempts", "not understood: 'blue attempts'"),
        ("On the first failure, retry whenever", "not understood: 'whenever'"),
        ("Then every blue moon", "not understood: 'blue moon'"),
        ("Mark the row", "what is marked, and with which text, belongs here"),
        ("Mark the row with stale", "a text in quotes"),
        ("every month on the blue day", "not understood: 'on the blue day'"),
        ("On the blue failure, retry at once", "not understood: 'On the blue failure'"),
        ("On the first 3 attempts, retry at once", "not understood: 'On the first 3"),
        ("On the first to blue failure, retry at once", "not understood: 'first to blue failure'"),
        ("every hour and a dog", "not understood: 'a dog'"),
        ("every other decade", "a unit of time or a day of the week belongs here"),
        ("3 times a week", "say on which day of the week"),
        ("Allow 1 hour to complete quickly", "not understood: 'quickly'"),
        ("Send", "not understood"),
        ("Give up after a week; on the first failure, reset attempt_no and wait for the next refresh",
         "a wait is for the next scheduled refresh"),
        ("every hour; then every 2 hours; on the first failure, wait for the next scheduled refresh",
         "two endings: any further failure is retried"),
        ("Retry 50000000 times", "line 1, column 7: there are at most 10,000 retries"),
        ("On the first 99999999 failures, retry immediately", "there are at most 10,000 retries"),
        ("Refresh daily; allow 6000 weeks", "longer than a hundred years"),
        ("Refresh daily; allow P9999999999W", "longer than a hundred years"),
        (f"Refresh daily; allow {'9' * 400} days", "longer than a hundred years"),
        ("Refresh every 99999999999 hours", "an interval of more than a thousand years"),
    ],
)  # fmt: skip
def test_parse_errors_show_their_place(text: str, message: str):
    """Errors contain the line, the column, the word, and the alternatives."""
    with pytest.raises(ScheduleSyntaxError) as refused:
        RefreshPolicy.parse(text)
    assert message in str(refused.value)
    assert f"line {refused.value.line}, column {refused.value.column}: {refused.value.problem}" == str(refused.value)


def test_a_schedule_counts_from_the_given_start():
    """Schedules typed by a user count from the given start, those in a program from a fixed day."""
    today = RefreshPolicy.parse("every 2 weeks on Friday at 17:00", start=START)
    explicit = RefreshPolicy.parse("every 2 weeks on Friday at 17:00 starting on 2026-01-31")

    assert (START, START.replace(hour=0, minute=0)) == (today.schedule.start, explicit.schedule.start)
    assert [today, explicit] == [RefreshPolicy.parse(str(each)) for each in (today, explicit)]


SPANS = st.sampled_from([timedelta(seconds=1.5), MINUTE, 90 * MINUTE, 26 * HOUR, 8 * DAY])
SCHEDULES = st.builds(
    Schedule,
    start=st.sampled_from([START, datetime(2001, 1, 1)]),  # noqa: DTZ001 - naive is the wall clock
    rules=st.lists(
        st.sampled_from(
            [
                "FREQ=DAILY", "FREQ=DAILY;INTERVAL=3;BYHOUR=6,16;BYMINUTE=0;BYSECOND=0", "FREQ=YEARLY;BYMONTH=3",
                "FREQ=WEEKLY;BYDAY=SA,SU;BYHOUR=8;BYMINUTE=30;BYSECOND=0", "FREQ=HOURLY;BYDAY=MO;BYHOUR=9,10,11",
                "FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=1,-1;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "FREQ=MINUTELY;BYHOUR=1,9",
                "FREQ=MONTHLY;BYDAY=-2FR;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "FREQ=MINUTELY;INTERVAL=10;BYHOUR=0,22,23",
                "FREQ=WEEKLY;BYHOUR=6;BYMINUTE=0;BYSECOND=0", "FREQ=HOURLY;COUNT=7",
            ]
        ).map(RecurrenceRule.parse),
        min_size=1, max_size=2, unique=True,
    ).map(tuple),
    crons=st.sampled_from([(), (CronExpression.parse("*/5 * * * *"),)]),
    times=st.sampled_from([(), (START,)]),
    except_times=st.sampled_from([frozenset(), frozenset({START})]),
    tz=st.sampled_from(["UTC", "Europe/Kyiv"]),
    gap=st.sampled_from(list(Gap)),
)  # fmt: skip
POLICIES = st.builds(
    RefreshPolicy,
    schedule=SCHEDULES,
    timeout=SPANS,
    delays=st.lists(st.one_of(SPANS, st.just(timedelta(0))), max_size=23).map(tuple),
    strategy=st.sampled_from(list(Strategy)),
    on_exhausted=st.sampled_from(list(Exhausted)),
    give_up_after=st.one_of(st.none(), SPANS),
    catch_up=st.one_of(st.none(), SPANS),
    jitter=st.one_of(st.just(timedelta(0)), SPANS),
    on_give_up=st.sampled_from(
        [(), (Action("panic"), Action("email", "ops@example.com"), Action("mark", "row", "stale, really"))]
    ),
)


@given(POLICIES)
def test_every_policy_is_written_and_read_back(policy: RefreshPolicy):
    """Every policy is written as sentences that are parsed as an equal one; parts without a sentence are quoted."""
    assert policy == RefreshPolicy.parse(str(policy))


@pytest.mark.parametrize(
    "text",
    [
        'Refresh by rule "FREQ=YEARLY;BYMONTH=3"\nAllow 10 minutes to complete',
        "\n".join(
            ["Allow 10 minutes to complete"]
            + [f"On the {each} failure, retry after {each[:-2]} minutes" for each in ("21st", "22nd", "23rd", "24th")]
        ).replace("\nOn the 21st", "\nOn the first 20 failures, retry immediately\nOn the 21st"),
    ],
)
def test_rare_rules_are_written(text: str):
    """Yearly rules, which have no sentence, are written, and so are failures beyond the last ordinal."""
    policy = RefreshPolicy.parse(text)

    assert text.splitlines()[-1] == str(policy).splitlines()[-1]
    assert policy == RefreshPolicy.parse(str(policy))


def test_common_policies_have_plain_sentences():
    """Schedules with a sentence are written as words, not as rules."""
    text = (
        "Refresh every month on the first and last day of the month at 00:00\n"
        "Allow 10 minutes to complete\n"
        "On the first failure, retry after 1.5 seconds\n"
        "On any further failure, retry immediately\n"
        "Keep retrying until it succeeds"
    )
    assert text == str(RefreshPolicy.parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            (
                "Refresh daily; on the first failure, wait until the next scheduled refresh; "
                "give up after the final unsuccessful retry"
            ),
            "two endings: the last failure both gives up and waits",
        ),
        (
            "Refresh daily\nOn the first failure:\n  - Wait until the next scheduled refresh\n  - Give up",
            "two endings: the last failure both gives up and waits",
        ),
        (
            "Retry after 1 minute; on any further failure, retry after 1 hour; on the second failure, give up",
            "two endings: any further failure is retried",
        ),
        ("Give up after one week; give up after 3 days", "two limits in time"),
    ],
)
def test_endings_that_exclude_each_other_are_refused(text: str, message: str):
    """Only one of them could be obeyed."""
    with pytest.raises(ScheduleSyntaxError, match=message):
        RefreshPolicy.parse(text)


@pytest.mark.parametrize(
    "ending",
    [
        "On the second failure, give up",
        "On the second failure:\n  - Give up",
        "On the second failure, email ops@example.com",
        "Give up after 2 attempts",
        "Give up after the last failed retry:\n  - Give up",
    ],
)
def test_an_explicit_ending_counts_beside_a_time_limit(ending: str):
    """It is written back, so that the text means the same."""
    policy = RefreshPolicy.parse(f"Refresh daily\nRetry after 1 minute\n{ending}\nGive up after one week")

    assert (Exhausted.GIVE_UP, timedelta(weeks=1)) == (policy.on_exhausted, policy.give_up_after)
    assert "On the second failure, give up" in str(policy)
    assert policy == RefreshPolicy.parse(str(policy))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('Email customer that "C:\\temp"', "in quotes, a backslash is written as two of them"),
        ('Mark the banner with ""', "the text in quotes is empty"),
        ('Mark the "" with "x"', "not understood"),
    ],
)
def test_quoted_text_is_parsed_strictly(text: str, message: str):
    """Backslashes begin an escape, and names and marks are not empty."""
    with pytest.raises(ScheduleSyntaxError, match=message):
        RefreshPolicy.parse(text)


def test_a_recurrence_without_a_sentence_that_is_understood_is_written_as_rules():
    """The words for two rules may not be read together; the rules in quotes are."""
    texts = ("FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=-1,1;BYHOUR=0;BYMINUTE=0;BYSECOND=0", "FREQ=MINUTELY;BYHOUR=1,9")
    policy = RefreshPolicy(schedule=Schedule(start=START, rules=tuple(map(RecurrenceRule.parse, texts))))

    assert "FREQ=MINUTELY" in str(policy)
    assert policy == RefreshPolicy.parse(str(policy))
