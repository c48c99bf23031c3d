"""A text as lines of words with their places, and the cursor over the words of a line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from redrive.errors import ScheduleSyntaxError
from redrive.schedule.english.words import DAYS, MONTHS

_SAME = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "\u2019": "'", "\u00a0": " ", "`": " ", "\t": " ", "\u2013": "-", "\u2014": "-"}
)
_SPACES = str.maketrans(dict.fromkeys(filter(str.isspace, map(chr, range(128, 0x3001))), " ") | {"\ufeff": " "})
# A dash between two clauses.
_DASH = re.compile(r"(?<=\s)\u2014(?=\s)")
_BULLET = re.compile(r"(?:[-*•]|\d+[.)])(?=\s)\s*")
_TOKEN = re.compile(
    r"""(?P<quoted>"(?:\\.|[^"\\])*")
    |(?P<clock>\d{1,2}(?::\d{2})?\ *[ap](?:m\b|\.\ *m\b\.?)|\d{1,2}:\d{2}(?:h\b|(?![\d:])))
    |(?P<past>:\d{2}\b)
    |(?P<ordinal>\d+(?:st|nd|rd|th)\b)
    |(?P<date>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(?![\w-]))
    |(?P<span>(?:\d+(?:\.\d+)?(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s))+\b)
    |(?P<number>\d{1,3}(?:,\d{3})+(?![\d,])|\d+(?:\.\d+)?(?![,./:]?\d))
    |(?P<odd>\d[\d.,:/]*\w*)
    |(?P<word>\#\w+|[^\W\d][\w'@/+&_-]*(?:\.[\w@/+_-]+)*)
    |(?P<mark>\S)""",
    re.VERBOSE | re.IGNORECASE,
)
# Words that are two names with a mark between them: Mon-Fri, Mon/Wed.
_JOINED = re.compile(r"[-/]")
_AFTER_AM = re.compile(r"\s+([^\W\d_][\w/]*)|\s*$")
_ESCAPE = re.compile(r'\\(?:u\{((?:10|[0-9a-f])?[0-9a-f]{1,4})\}|(["\\]))')
# The marks that end a sentence.
ENDS = frozenset({".", ";", "!"})
# At most so many words are quoted in a message.
_QUOTED = 4
# A message quotes at most so many characters.
_LONGEST = 80


class Token(msgspec.Struct, frozen=True):
    """A word, a number, a mark, or something in quotes."""

    # The name of a group of the expression above.
    kind: str
    # As it was written.
    text: str
    # Where it begins, from 1.
    column: int
    # In small letters, as words are compared.
    word: str


class TextLine(msgspec.Struct, frozen=True):
    """A line with at least one token."""

    # From 1.
    number: int
    # Its indentation, the bullet included.
    indent: int
    # As written, without Markdown marks.
    text: str
    # Its words, without the bullet.
    tokens: tuple[Token, ...]


class Place(msgspec.Struct, frozen=True):
    """Words of the text, and where they begin, for messages."""

    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return f'"{shortened(self.text)}" (line {self.line}, column {self.column})'


def lines(text: str) -> list[TextLine]:
    """Split a text, perhaps a list, into its lines that are not empty."""
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        plain = _DASH.sub(";", raw.translate(_SPACES)).translate(_SAME).replace("**", "  ")
        indent = len(plain) - len(plain.lstrip())
        bullet = _BULLET.match(plain, indent)
        tokens = tuple(_tokens(plain, bullet.end() if bullet else indent))
        if any(each.word not in ENDS for each in tokens):
            found.append(TextLine(number, indent, plain, tokens))
    return found


def _tokens(plain: str, begin: int) -> Iterator[Token]:
    for each in _TOKEN.finditer(plain, begin):
        kind, text, column = str(each.lastgroup), each[0], each.start() + 1
        word = text.lower()
        if kind == "clock" and text.endswith("."):
            yield Token(kind, text, column, word)
            if _ends_sentence(plain, each.end()):
                yield Token("mark", ".", column + len(text) - 1, ".")
        elif kind == "word" and len(names := _JOINED.split(word)) > 1 and _are_names(names):
            yield from _separated(text, column)
        else:
            yield Token(kind, text, column, "and" if text == "&" else word)


def _ends_sentence(plain: str, end: int) -> bool:
    """Return True if the full stop of "a.m." is also that of the sentence: a capital letter follows, or nothing."""
    after = _AFTER_AM.match(plain, end)
    if after is None or not after[1]:
        return after is not None
    word = after[1].lower()
    return after[1][0].isupper() and "/" not in word and word not in {*DAYS, *MONTHS, "utc", "and", "to", "until", "or"}


def _are_names(names: list[str]) -> bool:
    return all(each in DAYS for each in names) or all(each in MONTHS for each in names)


def _separated(text: str, column: int) -> Iterator[Token]:
    """Yield the names of "Mon-Fri" and "Mon/Wed", and the marks between them; a slash separates a list."""
    for each in re.finditer(r"[-/]|[^-/]+", text):
        if each[0] == "/":
            yield Token("mark", "/", column + each.start(), ",")
        else:
            yield Token("mark" if each[0] == "-" else "word", each[0], column + each.start(), each[0].lower())


# Quotes and backslashes get a backslash before them. Characters that lines, lists and Markdown would change are written
# by their number: ``\u{a}`` is the end of a line. So is a full stop at the end.
def quoted(text: str) -> str:
    r"""Return a text in quotes, on one line, so that `Reader.unquoted` reads exactly this text."""
    stars = "*" if "**" in text else ""
    body = "".join(_escaped(each) if each != "*" or stars else each for each in text)
    return f'"{body[:-1]}\\u{{2e}}"' if body.endswith(".") else f'"{body}"'


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    plain = char.isprintable() and ord(char) not in _SAME and ord(char) not in _SPACES and char != "*"
    return char if plain else f"\\u{{{ord(char):x}}}"


@functools.cache
def _index(phrases: tuple[str, ...]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Return phrases by their first words, the longest first."""
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for phrase in sorted(phrases, key=len, reverse=True):
        words = tuple(phrase.split())
        found.setdefault(words[0], []).append((words, phrase))
    return found


class Reader:
    """A cursor over the words of a line."""

    def __init__(self, line: TextLine) -> None:
        self.line = line
        self.place: int = 0

    @property
    def next(self) -> Token | None:
        """Return the next token, if there is one."""
        return self.line.tokens[self.place] if self.place < len(self.line.tokens) else None

    @property
    def word(self) -> str:
        """Return the next word in lower case; empty at the end of the line."""
        return self.ahead(0)

    @property
    def kind(self) -> str:
        """Return the kind of the next token; empty at the end of the line."""
        return self.next.kind if self.next else ""

    @property
    def is_ended(self) -> bool:
        """Return True at the end of a sentence."""
        return self.next is None or (self.next.kind == "mark" and self.next.text in ENDS)

    def ahead(self, count: int) -> str:
        """Return the word so many words after the next one, or before it, in lower case; empty if there is none."""
        at = self.place + count
        return self.line.tokens[at].word if 0 <= at < len(self.line.tokens) else ""

    def take(self, *phrases: str) -> str | None:
        """Take the longest of some phrases that is next and return it; return None if none of them is next.

        Phrases are words in small letters with single blanks between them.
        """
        for words, phrase in _index(phrases).get(self.word, ()):
            there = self.line.tokens[self.place : self.place + len(words)]
            if all(each.kind != "quoted" for each in there) and tuple(each.word for each in there) == words:
                self.place += len(words)
                return phrase
        return None

    def sees(self, *phrases: str) -> bool:
        """Return True if one of some phrases is next."""
        begin = self.place
        found = self.take(*phrases)
        self.place = begin
        return found is not None

    def take_kind(self, kind: str) -> Token | None:
        """Take a token of a kind and return it, or None if another token is next."""
        token = self.next
        if token is None or token.kind != kind:
            return None
        self.place += 1
        return token

    def said(self, begin: int) -> Place:
        """Return the words from a position up to the present one."""
        first, last = self.line.tokens[begin], self.line.tokens[max(self.place - 1, begin)]
        return Place(
            self.line.text[first.column - 1 : last.column - 1 + len(last.text)], self.line.number, first.column
        )

    def unquoted(self, token: Token) -> str:
        """Return the text of a quoted token that was just taken, without a full stop at its end; see `quoted`."""
        body = token.text[1:-1].rstrip(".")
        if _ESCAPE.sub("", body).count("\\"):
            self.refuse(self.place - 1, "in quotes, a backslash is written as two of them")
        return _ESCAPE.sub(lambda found: found[2] or chr(int(found[1], 16)), body)

    def refuse(self, at: int, problem: str, *forms: str) -> NoReturn:
        """Raise `ScheduleSyntaxError` for the word at a position, with forms that would work."""
        tokens = self.line.tokens
        here = tokens[min(at, len(tokens) - 1)]
        column = here.column if at < len(tokens) else here.column + len(here.text)
        if "'" not in problem and '"' not in problem:
            problem = f"{problem}: {shortened(self.said(at).text)!r}"
        raise ScheduleSyntaxError.at(problem + written_forms(forms), self.line.number, column)

    def lost(self, why: str, *forms: str, at: int | None = None) -> NoReturn:
        """Raise `ScheduleSyntaxError` for words that are not understood, with the reason and forms that would work."""
        begin = self.place if at is None else at
        self.refuse(begin, f"not understood: {self._words(begin)}: {why}", *forms)

    def _words(self, begin: int) -> str:
        """Return some words from a position on, as they were written, in quotes."""
        end = begin
        for each in self.line.tokens[begin : begin + _QUOTED]:
            if each.kind == "mark" and each.text in {*ENDS, ",", ":", "(", ")"}:
                break
            end += 1
        if end > begin:
            return f"'{self._text(begin, end)}'"
        is_over = begin >= len(self.line.tokens) or self.line.tokens[begin].text in ENDS
        if not is_over:
            return repr(self.line.tokens[begin].text)
        return (
            f"the end of the line after '{self._text(max(begin - _QUOTED, 0), begin)}'"
            if begin
            else "the end of the line"
        )

    def _text(self, begin: int, end: int) -> str:
        """Return the words from a position up to another one, as they were written."""
        last = self.line.tokens[end - 1]
        return shortened(self.line.text[self.line.tokens[begin].column - 1 : last.column - 1 + len(last.text)])


def shortened(text: str) -> str:
    """Return the beginning of a text that is too long for a message."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# Advice where no single sentence is a remedy: it is not in quotes.
_ADVICE = frozenset(
    {"one of them only", "each of them once", "each date once", "each recurrence once", "one of the recurrences only"}
)


def written_forms(forms: tuple[str, ...]) -> str:
    """Return the end of a message: forms that work."""
    named = [each if each in _ADVICE or '"' in each else f'"{each}"' for each in dict.fromkeys(forms)]
    return f"; write {' or '.join(named)}" if forms else ""
