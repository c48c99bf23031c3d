"""Policies in English: laws that hold for every sentence, whatever it means."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive.errors import ScheduleSyntaxError
from redrive.schedule import RefreshPolicy
from tests.schedule.english.test_corpus import ACCEPTED, REFUSED, SAVED

TEXTS = [each["text"] for each in ACCEPTED]
FREE = re.compile(r"\b(?:email|notify|mark|that)\b|[\"\u201c]", re.IGNORECASE)
"""What precedes words that are taken as they are: recipients and quoted texts."""

_FILLERS = """
    a an the please and , then but on at in of for to by is be should start refresh run configured each every per day
    it with up time zone policy do retries only
"""
_NAMES = """
    balance bank bigtable blood board book bookings calendar commission court dashboard energy exchange feed fleet
    grading helpdesk index insurance inventory ledger lift list mailing map menu model occupancy order parking patient
    payroll plan positions price prices queue rates report sales search seat service sheet shift stock summary support
    table tables thumbnailer ticket tide timesheets timetable trial vat ward weather send request roster tariff
    orders figures r&d #7 customer\u2019s
"""
# Words that may be left out, because the others say the same.
FILLERS = frozenset(_FILLERS.split())
# Words that may be left out in some sentences, where another word says the same.
_REDUNDANT = {
    "am": r"\d:\d\d am|night",
    "pm": r"12:\d\d pm|night",
    "1": r"\b1 (hour|minute)\b|^1[.)]",
    "2": r"^2[.)]|^ +2[.)]",
    "3": r"^3[.)]",
    "4": r"^4[.)]",
    "-": r"^ *- ",
    "\u2022": r"^\u2022",
    "after": r"immediately.* after|after .* after|then after",
    "during": r"business hours|office hours",
    "from": r"from .* to ",
    "make": r"make (at most|up to)",
    "retry": r"attempts, retry every",
    "minute": r"after 1 minute",
    "minutes": r"(after|hour|minute),? \d+ minutes",
    "once": r"once every|retry once after",
    "twice": r"retry twice:",
    "failed": r"last failed retry",
    "unsuccessful": r"final unsuccessful retry",
    "utc": r"utc",
    "starts": r"spread starts over",
    "refreshes": r"spread refreshes over",
    "monthly": r"monthly on the (\w+|last friday)",
    "yearly": r"yearly on",
    "annually": r"annually on",
    "weekly": r"weekly on",
}
REDUNDANT = {word: [re.compile(each, re.IGNORECASE | re.MULTILINE)] for word, each in _REDUNDANT.items()}
# Words of the names of what is refreshed, which have no meaning in a policy.
NAMES = frozenset(_NAMES.split())


def parsed(text: str) -> RefreshPolicy:
    """Return the policy of a text that was typed on the day of the corpus."""
    return RefreshPolicy.parse(text, start=SAVED)


def shown(text: str) -> str | None:
    """Return the meaning that users see, or None for a refused text."""
    try:
        return str(parsed(text))
    except ScheduleSyntaxError:
        return None


def refusal(text: str) -> str:
    """Return the message for a text; empty if it is understood."""
    try:
        parsed(text)
    except ScheduleSyntaxError as error:
        return str(error)
    return ""


def words(text: str) -> list[str]:
    """Return the words of a text with the spaces behind them."""
    return re.findall(r"\S+\s*|\s+", text)


def bare(word: str) -> str:
    """Return a word without case, spaces and punctuation around it."""
    return word.casefold().strip().strip('.,;:!()*`"\u201c\u201d')


@given(text=st.sampled_from(TEXTS), data=st.data())
def test_no_word_is_without_effect(text, data):
    """Sentences without one of their words, or with one of them twice, mean something different or are refused."""
    parts = words(text)
    place = data.draw(st.integers(0, len(parts) - 1))
    word = bare(parts[place])
    assume(word not in {"", "\u2014"} and word not in NAMES)
    before, after = "".join(parts[:place]), "".join(parts[place + 1 :])
    meaning = shown(text)
    assume(meaning is not None)
    assert meaning != shown(f"{before}{parts[place].strip()} {parts[place]}{after}")
    if word not in FILLERS and not any(each.search(text) for each in REDUNDANT.get(word, ())):
        assert meaning != shown(before + after)


CLAUSES = {
    "schedule": ["Refresh every day at 6 AM", "Every 15 minutes between 9 AM and 5 PM", "Refresh on the 1st at noon"],
    "timeout": ["Allow 5 minutes to complete", "Timeout: 1 hour"],
    "retry": ["Retry 3 times every 5 minutes", "Retry after 1 minute, 5 minutes and 1 hour", "Retry every 2 minutes"],
    "limit": ["Give up after 3 days", "Give up after a week without success"],
    "effect": ["Disable auto-refresh", "Email the account manager", 'Mark the report with "old"'],
    "spread": ["Spread starts over 5 minutes"],
    "late": ["Start at most 1 hour late"],
}
"""Clauses, each group of which may be given once."""


@st.composite
def chosen(draw: st.DrawFn) -> list[str]:
    """Draw clauses of different groups, in any order."""
    groups = draw(st.lists(st.sampled_from(sorted(CLAUSES)), min_size=1, unique=True))
    return [draw(st.sampled_from(CLAUSES[each])) for each in groups]


@given(clauses=chosen(), data=st.data())
def test_clauses_have_any_order_and_separator(clauses, data):
    """Clauses mean the same in every order, on lines of their own, as bullets, as sentences and between semicolons."""
    expected = parsed("\n".join(clauses))
    order = data.draw(st.permutations(clauses))
    joined = data.draw(st.sampled_from(["\n", "; ", ". ", ".\n\n", ";\n"])).join(order)
    assert expected == parsed(joined)
    assert expected == parsed("".join(f"- {each}\n" for each in order))
    assert expected == parsed("".join(f"{number}. {each}.\n" for number, each in enumerate(order, 1)))


PARTS = {
    "days": ["every day", "every Monday", "on weekdays", "every other Friday", "on the 1st and 15th of the month"],
    "times": ["at 6 AM", "at 9:30 and 16:00", "at noon"],
    "zone": ["in Europe/Kyiv", "in UTC"],
    "months": ["in March and September"],
    "start": ["starting on April 1, 2026"],
    "end": ["until 2028-12-31"],
}
"""Parts of a recurrence, the first of which is needed."""


@given(data=st.data())
def test_parts_of_a_recurrence_have_any_order(data):
    """Times, days, time zones, months, starts and ends of a recurrence mean the same in every order."""
    kinds = ["days", *data.draw(st.lists(st.sampled_from(sorted({*PARTS} - {"days"})), unique=True))]
    parts = [data.draw(st.sampled_from(PARTS[kind])) for kind in kinds]
    order = data.draw(st.permutations(parts))
    assert parsed(f"Refresh {' '.join(parts)}") == parsed(f"Refresh {' '.join(order)}")


@pytest.mark.unmeasured
def test_what_was_understood_is_read_back():
    """Policies of sentences are shown in English that means the same, also on another day."""
    policies = [(text, parsed(text)) for text in TEXTS]
    assert [] == [text for text, policy in policies if policy != RefreshPolicy.parse(str(policy), start=SAVED)]


@given(clauses=chosen(), parts=st.tuples(*(st.sampled_from(["", *each]) for each in list(PARTS.values())[1:])))
def test_combinations_are_read_back(clauses, parts):
    """Policies of any clauses are shown in English that means the same."""
    clauses = [each for each in clauses if each not in CLAUSES["schedule"]]
    policy = parsed("\n".join([" ".join(["Refresh every day", *filter(None, parts)]), *clauses]))
    assert policy == RefreshPolicy.parse(str(policy), start=SAVED)
    assert str(policy) == str(RefreshPolicy.parse(str(policy), start=SAVED))


# A capital letter after "a.m." begins a sentence, and those of units of ISO 8601 are capital.
SPELLED = [each for each in TEXTS if not FREE.search(each) and "PT" not in each and ".m." not in each.casefold()]
SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "words in title case": str.title,
    "two spaces": lambda text: text.replace(" ", "  "),
    "spaces of typesetters": lambda text: text.replace(" ", "\u2009"),
    "wide spaces": lambda text: text.replace(" ", "\u3000"),
    "protected spaces": lambda text: text.replace(" ", "\N{NO-BREAK SPACE}"),
    "tabs": lambda text: text.replace(" ", "\t"),
    "space around": lambda text: f"\n  {text}  \n\n",
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "full stop": lambda text: text.rstrip(" .!\n") + ".",
    "a mark of order": lambda text: f"\N{ZERO WIDTH NO-BREAK SPACE}{text}",
}


@pytest.mark.unmeasured
@pytest.mark.parametrize("how", SPELLINGS)
@given(text=st.sampled_from(SPELLED))
def test_spelling_does_not_matter(how, text):
    """Case, spaces and full stops do not change the meaning of sentences without quoted or free text."""
    assert parsed(text) == parsed(SPELLINGS[how](text))


SALAD = sorted({bare(each) for text in (*TEXTS, *(each["text"] for each in REFUSED)) for each in words(text)} - {""})


@given(
    st.lists(
        st.tuples(st.sampled_from(SALAD), st.sampled_from([" ", " ", " ", ", ", ". ", "; ", "\n- ", ": ", " (", ") "])),
        max_size=14,
    )
)
def test_mixed_words_are_refused_or_read_back(found):
    """Words of sentences in any order are refused, or are a policy that is read back."""
    text = "".join(itertools.chain.from_iterable(found))
    try:
        policy = parsed(text)
    except ScheduleSyntaxError:
        return
    assert policy == RefreshPolicy.parse(str(policy), start=SAVED)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_read_back(text):
    """Texts of any characters are refused, or are a policy that is read back."""
    try:
        policy = parsed(text)
    except ScheduleSyntaxError:
        return
    assert policy == RefreshPolicy.parse(str(policy), start=SAVED)


LONG: dict[str, Callable[[int], str]] = {
    "one word": lambda size: "x" * size,
    "unknown words": lambda size: "Refresh " + "foo " * (size // 4),
    "a long name": lambda size: f"Refresh {'big ' * (size // 4)} every day at 6 AM",
    "spaces": lambda size: f"Refresh {' ' * size} every day at 6 AM",
    "empty lines": lambda size: "\n" * size,
    "the same sentence": lambda size: "Refresh every day at 6 AM.\n" * (size // 27),
    "failures": lambda size: "".join(f"On the {n}0th failure, retry after 1 minute\n" for n in range(1, size // 43)),
    "actions": lambda size: "".join(f"Email user{n}@example.com\n" for n in range(size // 27)),
    "recipients": lambda size: "Email ops" + "".join(f", user{n}@example.com" for n in range(size // 23)),
    "dates": lambda size: (
        "Daily at noon except " + ", ".join(f"{date(2027, 1, 1) + n * timedelta(days=1)}" for n in range(size // 12))
    ),
    "times of recurrences": lambda size: (
        "Refresh every day at 0:00"
        + "".join(f" and every Monday at {n // 60}:{n % 60:02}" for n in range(1, min(size // 25, 1440)))
    ),
    "delays": lambda size: "Retry after 1 minute" + ", 5 minutes" * (size // 11),
    "times": lambda size: "Refresh every day at 6 AM" + " and 4 PM" * (size // 9),
    "days": lambda size: "Refresh on Monday" + ", Tuesday" * (size // 9),
    "recurrences": lambda size: "Refresh every day at 6 AM" + " and every Monday at 9 AM" * (size // 25),
    "an open quotation mark": lambda size: 'Mark the report with "' + "old " * (size // 4),
    "quotation marks": lambda size: '"' * size,
    "parentheses": lambda size: "Refresh every day at 6 AM" + "(" * size,
    "nested lists": lambda size: "".join(f"{' ' * (n % 40)}- Retry policy:\n" for n in range(size // 35)),
    "every": lambda size: "every " * (size // 6),
    "digits": lambda size: f"Refresh every {'9' * size} minutes",
    "commas": lambda size: "Refresh every day at 6 AM" + "," * size,
    "a text to send": lambda size: f"Email ops@example.com that {'it is old ' * (size // 10)}",
}


def steps(text: str) -> int:
    """Return the number of calls, of Python and C functions, that parsing takes."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    former = sys.getprofile()
    sys.setprofile(counted)
    try:
        refusal(text)
    finally:
        sys.setprofile(former)
    return count


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", LONG)
def test_parsing_takes_steps_in_proportion_to_the_length(kind):
    """Twice the text takes at most a little more than twice the steps."""
    once, twice = (steps(LONG[kind](size)) for size in (4000, 8000))
    assert twice <= 2.2 * once + 100


@pytest.mark.parametrize("kind", LONG)
def test_refusals_of_long_texts_are_short(kind):
    """Messages quote the beginning of what was not understood, not all of it."""
    message = refusal(LONG[kind](5000))
    assert len(message) <= 500


def test_a_day_of_the_month_is_a_whole_number():
    """Half days are refused."""
    with pytest.raises(ScheduleSyntaxError, match=r"not understood: 'on day 1\.5'"):
        RefreshPolicy.parse("Refresh every month on day 1.5")
