"""Recurrences composed at random, in English and as a reading for the slow calendar: both have the same occurrences."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.schedule.english.slow_calendar import WEEK
from tests.schedule.english.test_corpus import SAVED, listed, reckoned
from tests.schedule.english.test_laws import parsed

WORKDAYS, WEEKEND = "mon tue wed thu fri", "sat sun"
DAYS = [
    ("every day", "daily"),
    ("daily", "daily"),
    ("each day", "daily"),
    ("on weekdays", WORKDAYS),
    ("every weekday", WORKDAYS),
    ("every business day", WORKDAYS),
    ("Mon-Fri", WORKDAYS),
    ("Monday through Friday", WORKDAYS),
    ("on weekends", WEEKEND),
    ("every Monday", "mon"),
    ("on Sundays", "sun"),
    ("on Tuesday and Thursday", "tue thu"),
    ("every Monday, Wednesday and Saturday", "mon wed sat"),
    ("from Friday to Monday", "fri sat sun mon"),
    ("weekly on Wednesday", "wed"),
]
RARE_DAYS = [
    ("every other day", "every 2 days"),
    ("every third day", "every 3 days"),
    ("every 10 days", "every 10 days"),
    ("every other Monday", "every 2 weeks mon"),
    ("every second Tuesday", "every 2 weeks tue"),
    ("biweekly on Friday", "every 2 weeks fri"),
    ("every 3 weeks on Monday and Friday", "every 3 weeks mon fri"),
    ("every other week on Thursday", "every 2 weeks thu"),
    ("on the 1st and 15th", "month 1 15"),
    ("monthly on the 31st", "month 31"),
    ("on the last day of the month", "month -1"),
    ("on the first Monday of the month", "month 1:mon"),
    ("on the second and fourth Tuesday of each month", "month 2:tue 4:tue"),
    ("every month on the last Friday", "month -1:fri"),
    ("on the first business day of the month", "business 1"),
    ("on the last weekday of every month", "business -1"),
]
MONTHS = [("in March", "3"), ("in March and September", "3 9"), ("in June, July and August", "6 7 8")]
EXCEPT = [("except Sunday", "sun"), ("except on weekends", WEEKEND), ("except Mondays and Fridays", "mon fri")]
ZONES = ["UTC", "Europe/Kyiv", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Cairo"]
INTERVALS = [
    ("every 15 minutes", "15m"),
    ("every half hour", "30m"),
    ("every 45 minutes", "45m"),
    ("hourly", "1h"),
    ("every 1 hour and 30 minutes", "90m"),
    ("every 2 hours", "2h"),
    ("every 7h", "7h"),
]


@st.composite
def clocks(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a time of day, in English and for the slow calendar."""
    minutes = draw(st.integers(0, 1439))
    hour, minute = divmod(minutes, 60)
    half = "AM" if hour < 12 else "PM"
    said = [f"{hour}:{minute:02}", f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {half}"]
    if not minute:
        said += [
            f"{hour % 12 or 12} {half}",
            f"{hour % 12 or 12}{half.lower()}",
            f"{hour % 12 or 12} {half[0].lower()}.m.",
        ]
    if minutes in {0, 720}:
        said.append("noon" if minutes else "midnight")
    return draw(st.sampled_from(said)), f"{hour:02}:{minute:02}"


@st.composite
def times(draw: st.DrawFn) -> tuple[str, str]:
    """Draw times of day."""
    drawn = draw(st.lists(clocks(), min_size=1, max_size=3, unique_by=lambda each: each[1]))
    # "9:30 and 4:30 PM" could be in the evening twice.
    assume(len({"m" in said.casefold() for said, _ in drawn}) == 1)
    said = [each for each, _ in drawn]
    text = " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]
    return f"at {text}", " ".join(sorted(each for _, each in drawn))


@st.composite
def intervals(draw: st.DrawFn) -> tuple[str, str]:
    """Draw an interval, perhaps in a window of hours."""
    said, step = draw(st.sampled_from(INTERVALS))
    if draw(st.booleans()):
        return said, f"every {step}"
    (begin, first), (end, last) = sorted(draw(st.lists(clocks(), min_size=2, max_size=2)), key=lambda each: each[1])
    assume(first != last and ("m" in begin.casefold()) == ("m" in end.casefold()))
    form = draw(st.sampled_from(["between {} and {}", "from {} to {}"]))
    window = form.format(begin, end)
    return draw(st.sampled_from([f"{said} {window}", f"{window} {said}"])), f"every {step} from {first} to {last}"


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a recurrence in English, with its parts in any order, and its reading."""
    often = draw(st.booleans())
    said, days = draw(st.sampled_from(DAYS[:-1] if often else [*DAYS, *RARE_DAYS]))
    named = {each for each in days.split() if each in WEEK}
    spoken, time = draw(intervals() if often else times())
    parts, limits = [spoken], ""
    if not (often and days == "daily"):
        parts.append(said)
    for name, choices in (("months", MONTHS), ("except", EXCEPT)):
        if draw(st.integers(0, 3)) == 0:
            english, reading = draw(st.sampled_from(choices))
            # An exception without effect is refused, so is one that leaves nothing, and one from days with a name.
            assume(name == "months" or not (":" in days or "business" in days or " days" in days))
            assume(name == "months" or not named or 0 < len(named & set(reading.split())) < len(named))
            parts.append(english)
            limits += f"; {name} {reading}"
    first = SAVED.date() + draw(st.integers(0, 40)) * timedelta(days=1)
    if draw(st.integers(0, 3)) == 0:
        parts.append(draw(st.sampled_from(["starting on {}", "starting {}"])).format(in_words(draw, first)))
        limits += f"; from {first}"
    if draw(st.integers(0, 3)) == 0:
        last = first + draw(st.integers(200, 600)) * timedelta(days=1)
        parts.append(f"until {in_words(draw, last)}")
        limits += f"; until {last}"
    zone = draw(st.sampled_from(ZONES))
    if zone != "UTC" or draw(st.booleans()):
        parts.append(draw(st.sampled_from(["in {}", "({})"])).format(zone))
    text = " ".join(["Refresh", *draw(st.permutations(parts))])
    return text, {"slots": [f"{days} @ {time}{limits}"], "tz": zone}


def in_words(draw: st.DrawFn, day: date) -> str:
    """Draw a form of a date."""
    return draw(st.sampled_from([f"{day}", f"{day:%B} {day.day}, {day.year}", f"{day.day} {day:%B} {day.year}"]))


@given(cases())
@example(("Refresh in Africa/Cairo every day at 0:30", {"slots": ["daily @ 00:30"], "tz": "Africa/Cairo"}))
def test_composed_recurrences_have_the_occurrences_of_the_slow_calendar(case):
    """Recurrences of any days, times, windows, months, exceptions, limits and zones mean what their parts mean."""
    text, reading = case
    expected = reckoned(reading, 300)
    assume(expected)
    policy = parsed(text)
    assert policy.schedule is not None
    assert expected == list(itertools.islice(listed(policy), 300))
    assert policy == parsed(str(policy))
