"""The filter language of the job list: ``state:dead task:charge error:"timed out"``. PURE.

A filter is a list of conditions, separated by spaces, which must all hold; a value with spaces stands in double quotes.
A number alone is the id of a job. A text that cannot be read raises `FilterError` with the place and what would be
right: if a condition were ignored, an action on all matches would change too many.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold
from redrive.operate.exchange import LARGEST_ID, LONGEST, Fault, Payloads, Refusal, whole_number

_TERM: Final = re.compile(
    r'\s*(?:(?P<word>[^\s:"]+):)?(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^\s"]+|(?<=:)))(?=\s|$)'
)

#: The words of the language, each with its meaning.
WORDS: Final[Mapping[str, str]] = {
    "state": "ready, running, waiting, succeeded, dead or cancelled",
    "task": "the name of the task",
    "queue": "the name of the queue",
    "hold": "why it waits, such as retry or breaker",
    "reason": "why the last attempt failed, such as TIMEOUT",
    "error": "a part of the last error, as it is shown",
    "group": "the error group of the last error",
    "tag": "a tag",
    "caught": "yes or no: whether the catch task of a dead job has succeeded",
    "id": "the id of a job; several with commas",
}

_ANSWERS: Final[Mapping[str, bool]] = {"yes": True, "no": False}


class FilterError(Refusal):
    """A filter that cannot be read.

    Attributes:
        text: the filter.
        place: the position of the wrong part in it, from 0.
    """

    def __init__(self, text: str, place: int, detail: str) -> None:
        self.text = text
        self.place = place
        super().__init__(HTTPStatus.BAD_REQUEST, detail, faults=[Fault("q", detail, self.caret)])

    @property
    def caret(self) -> str:
        """The filter, and a caret below the wrong part, on two lines."""
        return f"{self.text}\n{' ' * self.place}^"


def parse(text: str, payloads: Payloads = Payloads.SHOW, *, most: int = LONGEST) -> Filter:
    """Parse a filter.

    Args:
        text: the filter.
        most: the characters that it may have.
        payloads: how much of the arguments the site shows that searches by it; errors are searched as they are shown.

    Raises:
        FilterError: it cannot be read.
    """
    if len(text) > most:
        raise FilterError(text[:most], most, f"a filter has at most {most} characters")
    given: dict[str, object] = {}
    place = 0
    while place < len(text.rstrip()):
        found = _TERM.match(text, place)
        start = place + len(text[place:]) - len(text[place:].lstrip())
        if found is None:
            raise FilterError(text, start, 'expected word:value, a number, or a value in double quotes "..."')
        word, value = (
            _word(found, text, start),
            found["plain"] if found["quoted"] is None else found["quoted"].replace('""', '"'),
        )
        field = "ids" if word == "id" else word
        if field in given:
            raise FilterError(text, start, f"{word}: is given twice; the conditions must all hold")
        given[field] = _value(word, value, text, start)
        place = found.end()
    is_hidden, is_redacted = payloads is Payloads.HIDDEN, payloads is Payloads.REDACTED
    return msgspec.structs.replace(Filter(hidden=is_hidden, redacted=is_redacted), **given)


def _word(found: re.Match[str], text: str, place: int) -> str:
    word = found["word"]
    if word is None:
        if found["plain"] is not None and found["plain"].isdigit():
            return "id"
        raise FilterError(text, place, f"a value without a word: write error:{found[0].strip()} to search in errors")
    if word not in WORDS:
        near = difflib.get_close_matches(word, WORDS, n=1)
        hint = f"; {near[0]}: is one" if near else ""
        raise FilterError(text, place, f"{word}: is not a word of the filter{hint}. The words are {', '.join(WORDS)}")
    return word


def _value(word: str, value: str, text: str, place: int) -> object:
    if not value:
        raise FilterError(text, place, f"{word}: has no value")
    if word == "id":
        numbers = [whole_number(each, most=LARGEST_ID) for each in value.split(",")]
        if None in numbers:
            raise FilterError(text, place, "id: is a number, or several with commas")
        return tuple(numbers)
    if word == "caught":
        if value not in _ANSWERS:
            raise FilterError(text, place, "caught: is yes or no")
        return _ANSWERS[value]
    kinds = {"state": State, "hold": Hold}
    if word in kinds:
        try:
            return kinds[word](value)
        except ValueError:
            known = ", ".join(each.value for each in kinds[word])
            raise FilterError(text, place, f"{word}: is one of {known}") from None
    return value


def write(where: Filter) -> str:
    """Write a filter as `parse` reads it."""
    parts = []
    for name, value in where.conditions.items():
        match value:
            case tuple():
                parts.append(f"id:{','.join(map(str, value))}")
            case bool():
                parts.append(f"{name}:{'yes' if value else 'no'}")
            case _:
                plain = str(value)
                quoted = plain.replace('"', '""')
                parts.append(f'{name}:"{quoted}"' if not plain or re.search(r'[\s"]', plain) else f"{name}:{plain}")
    return " ".join(parts)
