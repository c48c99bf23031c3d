"""Sentences of users: a reader's understanding of each is in `corpus.toml`, computed without the parser."""

from __future__ import annotations

import itertools
import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from redrive.errors import ScheduleSyntaxError
from redrive.schedule import Action, Exhausted, RefreshPolicy, Strategy
from tests.schedule.english.slow_calendar import occurrences, span

CORPUS = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text("utf-8"))
ACCEPTED, REFUSED = CORPUS["accepted"], CORPUS["refused"]
SAVED = datetime(2026, 3, 23)  # noqa: DTZ001 - the midnight of a Monday, on the wall clock
END = date(2031, 1, 1)
# Some days of each minute, years of each day.
MOST = 1500


def cases(entries: list[dict[str, Any]]) -> list[Any]:
    """Return the cases of a test, each with the beginning of its text as its name."""
    return [pytest.param(each, id=f"{number} {each['text'][:60]!r}") for number, each in enumerate(entries)]


def reckoned(entry: dict[str, Any], most: int = MOST) -> list[datetime]:
    """Return the first occurrences of a reading."""
    return list(itertools.islice(occurrences(entry["slots"], entry.get("tz", "UTC"), SAVED.date(), END), most))


def listed(policy: RefreshPolicy) -> list[datetime]:
    """Return the first occurrences of a policy, from the midnight at which it was saved."""
    assert policy.schedule is not None
    place = ZoneInfo(policy.schedule.tz)
    end = datetime(END.year, END.month, END.day, tzinfo=place).astimezone(UTC)
    found = itertools.islice(policy.schedule.since(SAVED.replace(tzinfo=place)), MOST)
    return list(itertools.takewhile(lambda at: at < end, found))


def action(text: str) -> Action:
    """Return the effect that is written as ``email > customer > text``."""
    return Action(*text.split(" > "))


def ending(entry: dict[str, Any], *, repeat: bool) -> Exhausted:
    """Return how a cycle of retries ends: a limit of time postpones the end while there are planned refreshes."""
    postponed = "give_up_after" in entry and "slots" in entry and not repeat
    return Exhausted(entry.get("exhausted", "wait_next" if postponed else "give_up"))


def expected(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the meaning that the reader understood; what the text leaves open is absent."""
    repeat = entry.get("repeat", False)
    found: dict[str, Any] = {
        "timeout": span(entry.get("timeout", "10m")),
        "give_up_after": span(entry["give_up_after"]) if "give_up_after" in entry else None,
        "catch_up": span(entry["catch_up"]) if "catch_up" in entry else None,
        "jitter": span(entry.get("jitter", "0s")),
        "on_give_up": tuple(action(each) for each in entry.get("effects", [])),
    }
    if entry.get("strategy") != "any":
        found["strategy"] = Strategy(entry.get("strategy", "retry_align_planned"))
    if entry.get("never"):
        found["never"] = True
    else:
        found["repeat_last"] = repeat
        if entry.get("exhausted") != "any":
            found["on_exhausted"] = ending(entry, repeat=repeat)
    if "retries" in entry:
        found["retries"] = entry["retries"]
    elif "delays" in entry or not entry.get("never"):
        found["delays"] = tuple(span(each) for each in entry.get("delays", "").split())
    return found


def understood(policy: RefreshPolicy, names: set[str]) -> dict[str, Any]:
    """Return the same parts of the meaning of a policy."""
    endless = policy.repeat_last or policy.on_exhausted is Exhausted.WAIT_NEXT
    derived = {"never": endless and policy.give_up_after is None, "retries": len(policy.delays)}
    return {name: derived[name] if name in derived else getattr(policy, name) for name in names}


@pytest.mark.unmeasured  # the sentences of sentences.txt take the branches of the parser
@pytest.mark.parametrize("entry", cases(ACCEPTED))
def test_sentences_mean_what_a_reader_understood(entry):
    """Policies of accepted sentences have the fields and the occurrences that a reader wrote down beforehand."""
    policy = RefreshPolicy.parse(entry["text"], start=SAVED)
    wanted = expected(entry)
    assert wanted == understood(policy, set(wanted))
    if "slots" not in entry:
        assert policy.schedule is None
        return
    assert policy.schedule is not None
    assert entry.get("tz", "UTC") == policy.schedule.tz
    assert reckoned(entry) == listed(policy)


@pytest.mark.parametrize("entry", cases(REFUSED))
def test_sentences_without_one_meaning_are_refused(entry):
    """Refusals quote the words of the user that are wrong, with their place."""
    with pytest.raises(ScheduleSyntaxError) as caught:
        RefreshPolicy.parse(entry["text"], start=SAVED)
    lines = entry["text"].split("\n")
    assert 1 <= caught.value.line <= len(lines)
    assert 1 <= caught.value.column <= len(lines[caught.value.line - 1]) + 1
    missing = [each for each in entry["words"] if each.casefold() not in str(caught.value).casefold()]
    assert [] == missing


@pytest.mark.unmeasured
@pytest.mark.parametrize("entry", cases([each for each in ACCEPTED if "slots" in each]))
def test_stored_occurrences_are_those_of_the_slow_calendar(entry):
    """Occurrences that are written in the corpus for its readers follow from the reading next to them."""
    place = ZoneInfo(entry.get("tz", "UTC"))
    whole = timedelta(minutes=1)
    shown = []
    for at in itertools.islice(occurrences(entry["slots"], place.key, SAVED.date(), date(2041, 1, 1)), 8):
        local = at.astimezone(place)
        is_whole = (local.replace(tzinfo=None) - SAVED) % whole == timedelta(0)
        shown.append(f"{local:%Y-%m-%d %H:%M}" if is_whole else f"{local:%Y-%m-%d %H:%M:%S}")
    assert entry["next"].split(", ") == shown


def test_corpus_is_large_and_has_each_sentence_once():
    """The corpus has at least four hundred sentences, a third of them to be refused."""
    texts = [each["text"] for each in (*ACCEPTED, *REFUSED)]
    assert len(texts) == len(set(texts))
    assert len(texts) >= 400
    assert 3 * len(REFUSED) >= len(texts)
