"""A text as lines of words, each of which knows where it stands."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from redrive.errors import ScheduleSyntaxError

_SAME = str.maketrans({"“": '"', "”": '"', "„": '"', "\u2019": "'", "\u00a0": " ", "`": " ", "\t": " "})
_BULLET = re.compile(r"(?:[-*•]|\d+[.)])(?=\s)\s*")
_TOKEN = re.compile(
    r"""(?P<quoted>"(?:\\.|[^"\\])*")
    |(?P<clock>\d{1,2}:\d{2}(?!\d))
    |(?P<ordinal>\d+(?:st|nd|rd|th)\b)
    |(?P<date>\d{4}-\d{2}-\d{2})
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<word>[^\W\d][\w'@/+_-]*(?:\.[\w@/+_-]+)*)
    |(?P<mark>\S)""",
    re.VERBOSE | re.IGNORECASE,
)
# The names of marks in messages.
_MARKS = {",": "a comma", ";": "a semicolon", ":": "a colon"}
_ESCAPE = re.compile(r'\\(?:u\{((?:10|[0-9a-f])?[0-9a-f]{1,4})\}|(["\\]))')


class Token(msgspec.Struct, frozen=True):
    """A word, a number, a mark, or something in quotes."""

    # ``word``, ``number``, ``ordinal``, ``clock``, ``date``, ``quoted`` or ``mark``.
    kind: str
    # As it was written.
    text: str
    # Where it begins, from 1.
    column: int

    @property
    def word(self) -> str:
        """In small letters, as words are compared."""
        return self.text.lower()


class TextLine(msgspec.Struct, frozen=True):
    """A line with at least one token."""

    # From 1.
    number: int
    # Its indentation, the bullet included.
    indent: int
    # As written, without Markdown marks.
    text: str
    # Its words, without the bullet and the full stop.
    tokens: tuple[Token, ...]


def lines(text: str) -> list[TextLine]:
    """Split a text, perhaps a list, into its lines that are not empty."""
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        plain = raw.translate(_SAME).replace("**", "  ")
        indent = len(plain) - len(plain.lstrip())
        bullet = _BULLET.match(plain, indent)
        begin = bullet.end() if bullet else indent
        tokens = tuple(Token(str(each.lastgroup), each[0], each.start() + 1) for each in _TOKEN.finditer(plain, begin))
        if tokens and tokens[-1].text == ".":
            tokens = tokens[:-1]
        if tokens:
            found.append(TextLine(number, indent, plain, tokens))
    return found


# Quotes and backslashes get a backslash before them. Characters that lines, lists and Markdown would change are written
# by their number: ``\u{a}`` is the end of a line. So is a full stop at the end.
def quoted(text: str) -> str:
    r"""Return a text in quotes, on one line, so that `Reader.unquoted` reads exactly this text."""
    body = "".join(map(_escaped, text))
    return f'"{body[:-1]}\\u{{2e}}"' if body.endswith(".") else f'"{body}"'


def _escaped(char: str) -> str:
    if char in {'"', "\\"}:
        return f"\\{char}"
    plain = char.isprintable() and ord(char) not in _SAME and char != "*"
    return char if plain else f"\\u{{{ord(char):x}}}"


class Reader:
    """A cursor over the words of a line, which remembers what it would have understood instead."""

    def __init__(self, line: TextLine) -> None:
        self.line = line
        self.place = 0
        self._furthest = 0
        self._expected: dict[str, None] = {}

    @property
    def next(self) -> Token | None:
        """Return the next token, if there is one."""
        return self.line.tokens[self.place] if self.place < len(self.line.tokens) else None

    @property
    def word(self) -> str:
        """Return the next word in lower case; empty at the end."""
        return self.next.word if self.next else ""

    @property
    def second(self) -> str:
        """Return the word after the next one in lower case; empty if there is none."""
        return "".join(each.word for each in self.line.tokens[self.place + 1 : self.place + 2])

    def take(self, *phrases: str) -> str | None:
        """Take one of some phrases and return it; return None if none of them is next.

        Phrases are words in small letters with single blanks between them; the longest should come first.
        """
        for phrase in phrases:
            words = phrase.split()
            there = self.line.tokens[self.place : self.place + len(words)]
            if [each.word for each in there] == words:
                self.place += len(words)
                return phrase
        self.expect(*phrases)
        return None

    def take_kind(self, kind: str, name: str) -> Token | None:
        """Take a token of a kind and return it, or None if another token is next; ``name`` describes it in messages."""
        token = self.next
        if token is not None and token.kind == kind:
            self.place += 1
            return token
        self.expect(name)
        return None

    def need(self, *phrases: str) -> str:
        """Take one of some phrases, of which one must be there; see `take`."""
        found = self.take(*phrases)
        if found is None:
            self.fail()
        return found

    def expect(self, *names: str) -> None:
        """Remember phrases, or their names, that would have been understood here."""
        if self.place > self._furthest:
            self._furthest, self._expected = self.place, {}
        if self.place == self._furthest:
            self._expected.update(dict.fromkeys(names))

    def expect_only(self, place: int, *names: str) -> None:
        """Remember these names alone for a position, unless a later one was understood; see `expect`."""
        if place >= self._furthest:
            self._furthest, self._expected = place, dict.fromkeys(names)

    def unquoted(self, token: Token) -> str:
        """Return the text of a quoted token that was just taken, without a full stop at its end; see `quoted`."""
        body = token.text[1:-1].rstrip(".")
        if _ESCAPE.sub("", body).count("\\"):
            self.fail("in quotes, a backslash is written as two of them")
        return _ESCAPE.sub(lambda found: found[2] or chr(int(found[1], 16)), body)

    def rest(self) -> str:
        """Take all that is left, as it was written, up to a semicolon; without its full stop."""
        begin = self.next
        if begin is None:
            return ""
        while self.next is not None and self.next.text != ";":
            self.place += 1
        last = self.line.tokens[self.place - 1]
        text = self.line.text[begin.column - 1 : last.column - 1 + len(last.text)]
        return " ".join(text.split()).rstrip(".")

    def fail(self, problem: str | None = None) -> NoReturn:
        """Raise `ScheduleSyntaxError`; by default for the word at the deepest position, which is not understood."""
        place = self._furthest if problem is None else max(self.place - 1, 0)
        tokens = self.line.tokens
        here = tokens[min(place, len(tokens) - 1)]
        at_end = place >= len(tokens)
        column = here.column + len(here.text) if at_end else here.column
        if problem is None:
            what = "the end of the line" if at_end else repr(here.text)
            wanted = ", ".join(_MARKS.get(each, each) for each in self._expected) if self._furthest == place else ""
            problem = f"not understood: {what}" + (f"; here could stand: {wanted}" if wanted else "")
        raise ScheduleSyntaxError.at(problem, self.line.number, column)
