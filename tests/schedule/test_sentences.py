"""Sentences of users: each is read as its canonical form, or refused at a place and with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from redrive.errors import ScheduleSyntaxError
from redrive.schedule import RefreshPolicy
from redrive.schedule.english.read import understand
from redrive.schedule.english.write import understood_sentences
from tests.selection import sized

FILE = Path(__file__).with_name("sentences.txt")
USUAL = "Allow 10 minutes to complete"
# Words that repeat what their place or the rest of the sentence says. Without one of them the sentence means the same,
# or is refused; without any other word it means something else, or is refused.
EMPTY = frozenset(
    [
        "1",
        "12",
        "12:00",
        "=",
        "a.",
        "a.m.",
        "after",
        "all",
        "allow",
        "am",
        "an",
        "and",
        "annually",
        "at",
        "auto-refresh",
        "automatically",
        "but",
        "day",
        "during",
        "each",
        "every",
        "execute",
        "from",
        "immediately",
        "in",
        "is",
        "make",
        "maximum",
        "minute",
        "minutes",
        "monthly",
        "night",
        "o'clock",
        "of",
        "on",
        "once",
        "only",
        "our",
        "please",
        "pm",
        "refresh",
        "refreshes",
        "run",
        "saying",
        "schedule",
        "should",
        "quarterly",
        "schedule:",
        "start",
        "that",
        "the",
        "them",
        "then",
        "time",
        "to",
        "twice",
        "unsuccessful",
        "utc",
        "waiting",
        "weekly",
        "with",
        "yearly",
        "starts",
        "zone",
    ]
)
WORD = re.compile(r"[^\s,.;()\"]+(?:\.[^\s,.;()\"]+)*")


def sentences() -> Iterator[tuple[str, list[str]]]:
    """Yield each sentence with the lines below it."""
    for block in FILE.read_text(encoding="utf-8").split("\n> ")[1:]:
        first, *rest = block.strip().splitlines()
        yield first.replace("\\n", "\n"), rest


ALL = list(sentences())
READ = [
    (text, [each.removeprefix("= ") for each in below]) for text, below in ALL if not below[:1] or below[0][0] == "="
]
REFUSED = [(text, below[0].split(" ", 2)) for text, below in ALL if below[:1] and below[0][0] == "!"]


def shown(text: str) -> tuple[str, str | None] | None:
    """Return the meaning of a text as `redrive plan` shows it; None if it is refused."""
    try:
        found = understand(text, RefreshPolicy)
    except ScheduleSyntaxError:
        return None
    return str(found.policy), found.subject


def test_each_sentence_is_read():
    """Sentences are read exactly, and their canonical form means the same."""
    wrong = {}
    for text, written in READ:
        policy = RefreshPolicy.parse(text)
        found = [each for each in str(policy).splitlines() if each != USUAL]
        if written != found or policy != RefreshPolicy.parse(str(policy)):
            wrong[text] = found

    assert {} == wrong


def test_what_is_shown_means_the_same():
    """Sentences with the name of what is refreshed, as `redrive plan` shows them, are read as the same."""
    wrong = {}
    for text, _ in READ:
        found = understand(text, RefreshPolicy)
        shown_as = understand("\n".join(understood_sentences(found)), RefreshPolicy)
        if (found.policy, found.subject, found.is_task) != (shown_as.policy, shown_as.subject, shown_as.is_task):
            wrong[text] = shown_as

    assert {} == wrong


def test_the_end_of_a_window_is_remarked():
    """Times that a reader could expect at the end of a window are named; other windows have no remark."""
    closed = understand("every 2 hours between 9 AM and 5 PM", RefreshPolicy)
    until_midnight = understand("every hour between noon and midnight", RefreshPolicy)
    open_ = understand("every 45 minutes between 9 AM and 5 PM", RefreshPolicy)

    assert ('17:00 is outside of the window "between 9 AM and 5 PM" (line 1, column 15)',) == closed.remarks
    assert until_midnight.remarks[0].startswith("00:00 is outside of the window")
    assert () == open_.remarks


def test_each_wrong_sentence_is_refused():
    """Sentences with words that are not understood are refused with the place, the reason and a form that works."""
    wrong = {}
    for text, (_, column, problem) in REFUSED:
        try:
            wrong[text] = RefreshPolicy.parse(text)
        except ScheduleSyntaxError as refused:
            found = refused.column, refused.problem[: len(problem)], "; write " in refused.problem
            if found != (int(column), problem, True):
                wrong[text] = refused

    assert {} == wrong


def changed(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a text with each word twice, and without it; and whether it may mean the same."""
    for each in WORD.finditer(text):
        if any(map(str.isalnum, each[0])):
            yield f"{text[: each.end()]} {each[0]}{text[each.end() :]}", False
            yield f"{text[: each.start()]}{text[each.end() :].lstrip(' ')}", each[0].lower() in EMPTY


@pytest.mark.unmeasured
def test_no_word_is_dropped():
    """Sentences with a word twice, or without a word that has a meaning, have another meaning or are refused."""
    texts = [text for text, _ in READ if crc32(text.encode()) % sized(4, 1) == 0]
    same = [
        other
        for text in texts
        for meant in [shown(text)]
        for other, may_be_same in changed(text)
        if not may_be_same and meant == shown(other)
    ]

    assert len(READ) // 6 < len(texts)
    assert [] == same


def test_the_forms_that_messages_advise_are_understood():
    """Each quoted form of a message is itself a sentence, or a part of one."""
    advised = set()
    for text, _ in REFUSED:
        with pytest.raises(ScheduleSyntaxError) as refused:
            RefreshPolicy.parse(text)
        advised |= set(re.findall(r'(?:write|or) "([^"]+)"', refused.value.problem))
    for each in sorted(advised):
        assert any(shown(form.format(each)) for form in FORMS), each


# In which sentence a form stands.
FORMS = (
    "{}",
    "Refresh {}",
    "Refresh every day {}",
    "Refresh every hour {}",
    "Refresh every day at {}",
    "Refresh daily at 6 AM {}",
    "Refresh every hour; retry after 5 minutes; {}",
    "Retry after 5 minutes; {}",
    "Retry 2 times; {}",
    "On the first failure, {}",
    "On the first failure, retry at once; {}",
    "Refresh {} at 9 AM",
    "Refresh every day; {}",
    "Allow {}",
    "Refresh hourly; retry 2 times every 5 minutes; {}",
    "Refresh hourly; on the first failure, {}",
    "Refresh daily starting {}",
)
