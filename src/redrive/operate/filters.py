"""The filter language of the job list: ``state:dead -task:charge error:"timed out" since:2h``.

A filter is a list of conditions, separated by spaces, which must all hold; a value with spaces stands in double quotes,
and ``-`` before a condition leaves out the jobs that meet it. A number alone is the id of a job; another text alone is
a value of the business, such as the number of an invoice. A text that cannot be read raises `FilterError` with the
place and what would be right: if a condition were ignored, an action on all matches would change too many.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from redrive.clock import SystemClock
from redrive.engine.lifecycle import State
from redrive.engine.records import CONDITIONS, EXCLUDED, Filter, Hold
from redrive.errors import ConfigurationError, PolicyError
from redrive.operate.exchange import LARGEST_ID, LONGEST, Fault, Payloads, Refusal, whole_number
from redrive.policy import parse_duration

_TERM: Final = re.compile(
    r'\s*(?P<not>-)?(?:(?P<word>[^\s:"]+):)?(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^\s"]+|(?<=:)))(?=\s|$)'
)

#: The words of the language, each with its meaning.
WORDS: Final[Mapping[str, str]] = {
    "state": "one of ready, running, waiting, succeeded, dead or cancelled",
    "task": "the name of the task",
    "queue": "the name of the queue",
    "hold": f"why it waits: one of {', '.join(Hold)}",
    "reason": "why the last attempt failed, such as TIMEOUT",
    "error": "a part of the last error, as it is shown",
    "group": "the error group of the last error",
    "tag": "a tag",
    "args": "the value of an argument, or with * a part of it, such as *-443",
    "key": "the unique key or the idempotency key",
    "partition": "the partition of the queue, such as a tenant",
    "schedule": "the name of the cron or the refresh that has made it",
    "run": "the id of a run, for its job and those of the runs that it has called",
    "worker": "the id or the name of a worker that has had an attempt",
    "since": "a time such as 2h, or an instant such as 2026-03-01T06:00Z: ended, or else enqueued, since then",
    "until": "a time such as 2h, or an instant such as 2026-03-01T06:00Z: ended, or else enqueued, before then",
    "attempts": "the number of attempts, such as >3",
    "took": "how long the latest attempt took, such as >10s",
    "caught": "yes or no: whether the catch task of a dead job has succeeded",
    "skipped": "yes or no: whether an operator has skipped a dead job",
    "id": "a number, or several with commas",
}

_ANSWERS: Final[Mapping[str, bool]] = {"yes": True, "no": False}

# What says the opposite of the conditions that have no "-".
_OPPOSITES: Final[Mapping[str, str]] = {
    "since": "until:",
    "until": "since:",
    "attempts": "another comparison, such as attempts:<=3",
    "took": "another comparison, such as took:<10s",
    "caught": "caught:yes or caught:no",
    "skipped": "skipped:yes or skipped:no",
    "id": "the other conditions of the jobs that you mean",
}

# How the value of a word is read; a missing key and a `ValueError` say that it cannot be.
_READ: Final[Mapping[str, Callable[[str], object]]] = {
    "state": State,
    "hold": Hold,
    "caught": _ANSWERS.__getitem__,
    "skipped": _ANSWERS.__getitem__,
}


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


class Search(msgspec.Struct, frozen=True, gc=False):
    """What a user searches.

    Attributes:
        where: the conditions.
        word: a value that stands alone; None without one.
    """

    where: Filter
    word: str | None = None


class _Term(msgspec.Struct, frozen=True, gc=False):
    place: int
    negated: bool
    word: str | None
    value: str
    is_quoted: bool


def parse(text: str, payloads: Payloads = Payloads.SHOW, *, most: int = LONGEST, now: datetime | None = None) -> Filter:
    """Parse a filter without a value that stands alone; see `read_search`."""
    for term in _terms(text, most):
        if term.word is None and not _is_id(term):
            detail = f"a value without a word: write args:{term.value}, key:, tag: or error:"
            raise FilterError(text, term.place, f"{detail}, so that it means one thing")
    return read_search(text, payloads, most=most, now=now).where


def read_search(
    text: str, payloads: Payloads = Payloads.SHOW, *, most: int = LONGEST, now: datetime | None = None
) -> Search:
    """Read a filter, or a value that is searched.

    Args:
        text: the filter.
        most: the characters that it may have.
        payloads: how much of the arguments the site shows that searches by it; errors are searched as they are shown.
        now: the instant from which spans of time count; by default the present one.

    Raises:
        FilterError: it cannot be read.
    """
    given: dict[str, Any] = {}
    excluded: list[Filter] = []
    word: str | None = None
    for term in _terms(text, most):
        name = _name(term, text)
        if name is None:
            if term.negated or word is not None:
                what = "a value without a word" if term.negated else "two values without a word"
                detail = f'{what}: write args:, key: or tag:, or one value in quotes "..."'
                raise FilterError(text, term.place, detail)
            word = term.value
            continue
        if name == "args" and payloads is Payloads.HIDDEN:
            raise FilterError(text, term.place, "args: this dashboard hides arguments")
        value = _value(name, term.value, text, term.place, now)
        field = "ids" if name == "id" else name
        if term.negated:
            if name not in EXCLUDED:
                raise FilterError(text, term.place, f"-{name}: write {_OPPOSITES[name]}")
            excluded.append(replace(Filter(), **{field: value}))
            continue
        if field in given:
            raise FilterError(text, term.place, f"{name}: is given twice; the conditions must all hold")
        given[field] = value
    is_hidden, is_redacted = payloads is Payloads.HIDDEN, payloads is Payloads.REDACTED
    where = replace(Filter(hidden=is_hidden, redacted=is_redacted), **given, without=tuple(excluded))
    return Search(where, word)


class Chip(msgspec.Struct, frozen=True, gc=False):
    """A condition of a filter as a page shows it.

    Attributes:
        word: with its colon, and ``-`` before it if it leaves jobs out; empty for a value that stands alone.
        without: the filter without it.
    """

    word: str
    value: str
    without: str
    negated: bool


def chips(text: str) -> tuple[Chip, ...]:
    """Return the conditions of a filter that can be read."""
    terms = list(_terms(text, len(text)))
    ends = [*(term.place for term in terms), len(text)][1:]
    return tuple(
        Chip(
            "" if term.word is None else f"{'-' if term.negated else ''}{term.word}:",
            term.value,
            f"{text[: term.place]}{text[end:]}".strip(),
            term.negated,
        )
        for term, end in zip(terms, ends, strict=True)
    )


def _terms(text: str, most: int) -> Iterator[_Term]:
    if len(text) > most:
        raise FilterError(text[:most], most, f"a filter has at most {most} characters")
    place = 0
    while place < len(text.rstrip()):
        found = _TERM.match(text, place)
        start = place + len(text[place:]) - len(text[place:].lstrip())
        if found is None:
            raise FilterError(text, start, 'expected word:value, a number, or a value in double quotes "..."')
        value = found["plain"] if found["quoted"] is None else found["quoted"].replace('""', '"')
        yield _Term(start, found["not"] is not None, found["word"], value, found["quoted"] is not None)
        place = found.end()


def _is_id(term: _Term) -> bool:
    return term.word is None and not term.negated and not term.is_quoted and term.value.isdigit()


def _name(term: _Term, text: str) -> str | None:
    """Return the word of a term; None for a value that stands alone."""
    if term.word is None:
        if not term.value:
            raise FilterError(text, term.place, 'expected word:value, a number, or a value in double quotes "..."')
        return "id" if _is_id(term) else None
    if term.word in WORDS:
        return term.word
    near = difflib.get_close_matches(term.word, WORDS, n=1, cutoff=0.7)
    hint = f"; {near[0]}: is one" if near else ""
    detail = f"{term.word}: is not a word of the filter{hint}. The words are {', '.join(WORDS)}"
    raise FilterError(text, term.place, f'{detail}; a value with a colon stands in quotes, as in "a:b"')


def _value(word: str, value: str, text: str, place: int, now: datetime | None) -> object:
    if not value:
        raise FilterError(text, place, f"{word}: has no value")
    try:
        match word:
            case "id":
                return _ids(value)
            case "since" | "until":
                return _instant(value, now or SystemClock().now())
            case "attempts" | "took":
                # Checks it.
                return getattr(replace(Filter(), **{word: value}), word)
            case _:
                return _READ[word](value) if word in _READ else value
    except (ValueError, KeyError):
        raise FilterError(text, place, f"{word}: is {WORDS[word]}") from None
    except ConfigurationError as error:
        raise FilterError(text, place, str(error)) from error


def _ids(value: str) -> tuple[int, ...]:
    numbers = [whole_number(each, most=LARGEST_ID) for each in value.split(",")]
    if None in numbers:
        raise ValueError(value)
    return tuple(each for each in numbers if each is not None)


def _instant(value: str, now: datetime) -> datetime:
    """Read an instant, or a span of time before the present one."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        try:
            return now - parse_duration(value)
        except (PolicyError, OverflowError):
            raise ValueError(value) from None
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError(value) from None


def write(where: Filter, word: str | None = None) -> str:
    """Write a filter as `read_search` reads it; spans of time are instants."""
    parts = [] if word is None else [f'"{_doubled(word)}"' if word.isdigit() or _needs_quotes(word) else word]
    parts += (_written(name, getattr(where, name)) for name in where.conditions if name != "without")
    parts += (f"-{write(each)}" for each in where.without)
    return " ".join(parts)


def rest(found: Search) -> str:
    """Write what no option of a command has, for its argument."""
    return write(replace(found.where, **dict.fromkeys(CONDITIONS)), found.word)


def _written(name: str, value: object) -> str:
    match value:
        case tuple():
            return f"id:{','.join(map(str, value))}"
        case bool():
            return f"{name}:{'yes' if value else 'no'}"
        case datetime():
            return f"{name}:{value.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"
        case _:
            plain = str(value)
            return f'{name}:"{_doubled(plain)}"' if not plain or re.search(r'[\s"]', plain) else f"{name}:{plain}"


def _doubled(text: str) -> str:
    return text.replace('"', '""')


def _needs_quotes(text: str) -> bool:
    """Return True if a value that stands alone would be read as something else."""
    return re.search(r'[\s":]', text) is not None or text.startswith("-")
