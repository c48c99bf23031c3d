"""FTL's reading of a retry directive, with its error texts: ``Policy.parse(text, strict=True)``.

FTL reads a directive in two steps, and so does this module:

1. A *parser* over tokens reads shapes (`parse`). Its errors have a position, ``1:13: unexpected token "s"``. FTL has
   one parser for Go comments (``//ftl:retry ...``) and one for schema text (``+retry ...``), which differ in the column
   and in the name of the record only. This module gives the errors of the schema parser; `go_message` translates them.
2. A *validation* of the parsed text (`Written.problems`) checks durations and limits.

Differences from `redrive.policy.directive`: a bare number at the very end of the text is an error even if it is 0,
``ms`` does not exist, and backoffs are between one second and one day. FTL's overflow of 64-bit nanoseconds is not
reproduced. If FTL reports two errors together, they are joined by a semicolon.
"""

from __future__ import annotations

import re
from datetime import timedelta

from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.policy.directive import DEFAULT_MAXIMUM, DEFAULT_MINIMUM, DEFAULT_RETRIES, Directive, count_of, pasted
from redrive.policy.duration import span
from redrive.policy.value import NamedTuple

_SCHEMA_COLUMN = len("+retry ") + 1
_GO_COLUMN = len("ftl:retry ") + 1
_LOWEST, _HIGHEST = timedelta(seconds=1), timedelta(days=1)
# Characters of an unreadable text that the lexer shows.
_SAMPLE = 16
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}

_TOKENS = re.compile(
    r"""(?P<blank>[ \t\r\n\v\f]+)
    |(?P<ident>[a-zA-Z_][a-zA-Z0-9_]*(?![a-zA-Z0-9_]))
    |(?P<comment>//[^\n]*)
    |(?P<string>"(?:\\.|[^"])*")
    |(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<punct>[-%/_:\[\]{}<>()*+?.,\\^$|\#~!'@=])""",
    re.VERBOSE,
)
_COMPONENT = re.compile(r"([0-9]+)([a-zA-Z]+)")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    blank_after: bool


class Written(NamedTuple):
    """A parsed directive; durations are still text."""

    #: The number of retries, or None.
    count: int | None  # type: ignore[assignment]  # FTL's name; it hides an unused method of tuple
    #: Text of the minimum backoff, or "".
    minimum: str
    #: Text of the maximum backoff, or "".
    maximum: str
    #: ``verb`` or ``module.verb``, or None.
    catch: str | None

    def problems(self) -> list[str]:
        """Return the errors of FTL's validation; empty if the directive is valid."""
        found = ["retry count can not be negative"] if self.count is not None and self.count < 0 else []
        try:
            low, high = self._limits()
        except PolicyValueError as error:
            return [*found, str(error)]
        if high < low:
            found.append(
                f"max backoff duration ({self.maximum}) needs to be at least as long as"
                f" initial backoff ({self.minimum})"
            )
        if self.count == 0 and self.minimum and self.catch is None:
            found.append("can not define a backoff duration when retry count is 0 and no catch is declared")
        return found

    def directive(self) -> Directive:
        """Return the values, defaults filled in; raise `PolicyValueError` if FTL's validation finds a problem."""
        problems = self.problems()
        if problems:
            raise PolicyValueError("; ".join(problems))
        low, high = self._limits()
        return Directive(DEFAULT_RETRIES if self.count is None else self.count, low, high, self.catch)

    def _limits(self) -> tuple[timedelta, timedelta]:
        if self.minimum:
            low = _limited(self.minimum, "min")
        elif self.count == 0:
            low = DEFAULT_MINIMUM
        else:
            raise PolicyValueError("retry must have a minimum backoff")
        return low, _limited(self.maximum, "max") if self.maximum else max(low, DEFAULT_MAXIMUM)


def read_directive(text: str) -> Directive:
    """Read a directive as FTL does, perhaps with its introduction."""
    return parse(pasted(text)).directive()


def go_message(error: PolicySyntaxError) -> str:
    """Translate an error of FTL's schema parser to the text of its parser of Go comments."""
    if error.at is None:
        return f"DirectiveRetry.Count: {error.problem}"
    return f"1:{_GO_COLUMN + error.at}: {error.problem}"


def parse(text: str) -> Written:
    """Read the shape of a directive: ``[count] [min] [max] ["catch" [module "."] verb]``."""
    tokens = _lex(text)
    count = None
    if tokens[0].kind == "number" and tokens[0].blank_after:
        count = tokens.pop(0).text
    minimum = _duration(text, tokens)
    maximum = _duration(text, tokens)
    catch = _catch(text, tokens)
    number = _integer(text, count)
    if tokens[0].kind != "end":
        raise _unexpected(text, tokens[0])
    return Written(number, minimum, maximum, catch)


def _lex(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            rest = text[at:]
            shown = rest if len(rest) <= _SAMPLE else rest[:_SAMPLE] + "..."
            raise _error(text, at, f"invalid input text {_quoted(shown)}")
        if match.lastgroup == "blank":
            if tokens:
                tokens[-1] = tokens[-1]._replace(blank_after=True)
        else:
            tokens.append(_Token(match.lastgroup, match.group(), at, blank_after=False))
        at = match.end()
    return [*tokens, _Token("end", "<EOF>", len(text), blank_after=False)]


def _duration(text: str, tokens: list[_Token]) -> str:
    if tokens[0].kind != "number":
        return ""
    number = tokens.pop(0)
    if number.blank_after:
        raise _unexpected(text, tokens[0])
    if tokens[0].kind != "ident":
        raise _unexpected(text, tokens[0], expected=True)
    return number.text + tokens.pop(0).text


def _catch(text: str, tokens: list[_Token]) -> str | None:
    if tokens[0].text != "catch" or tokens[0].kind != "ident":
        return None
    tokens.pop(0)
    name = _ident(text, tokens)
    if tokens[0].text == "." and tokens[0].kind == "punct":
        tokens.pop(0)
        name += "." + _ident(text, tokens)
    return name


def _ident(text: str, tokens: list[_Token]) -> str:
    if tokens[0].kind != "ident":
        raise _unexpected(text, tokens[0], expected=True)
    return tokens.pop(0).text


def _integer(text: str, count: str | None) -> int | None:
    if count is None:
        return None
    value = None if "." in count else count_of(count)
    if value is None:
        problem = "invalid syntax" if "." in count else "value out of range"
        inner = f'strconv.ParseInt: parsing "{count}": {problem}'
        raise PolicySyntaxError(f"MetadataRetry.Count: {inner}", text=text, problem=inner)
    return value


def _unexpected(text: str, token: _Token, *, expected: bool = False) -> PolicySyntaxError:
    shown = token.text[1:-1] if token.kind == "string" else token.text
    return _error(text, token.at, f"unexpected token {_quoted(shown)}{' (expected <ident>)' if expected else ''}")


def _error(text: str, at: int, problem: str) -> PolicySyntaxError:
    return PolicySyntaxError(f"1:{_SCHEMA_COLUMN + at}: {problem}", text=text, at=at, problem=problem)


def _quoted(text: str) -> str:
    """Quote a text as Go's ``%q`` does, for the characters that a directive can have."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in escaped) + '"'


def _limited(text: str, which: str) -> timedelta:
    try:
        value = parse_duration(text)
    except PolicyValueError as error:
        raise PolicyValueError(
            f"could not parse {which} backoff duration: could not parse retry duration: {error}"
        ) from None
    if value < _LOWEST:
        raise PolicyValueError(f"could not parse {which} backoff duration: retry must have a minimum backoff of 1s")
    if value > _HIGHEST:
        raise PolicyValueError(f"could not parse {which} backoff duration: retry backoff can not be larger than 1d")
    return value


def parse_duration(text: str) -> timedelta:
    """Read a duration as FTL does: units d, h, m, s only; the empty text is zero.

    Spans for which FTL's 64-bit nanoseconds overflow are computed correctly, up to `redrive.policy.duration.LONGEST`.
    """
    total, at, last = 0, 0, 0
    while at < len(text):
        match = _COMPONENT.match(text, at)
        rest = text[at:]
        if match is None:
            raise PolicyValueError(
                f"unable to parse duration {_quoted(rest)} - expected duration in format like '1m' or '30s'"
            )
        digits, unit = match.groups()
        value = count_of(digits)
        if value is None:
            inner = f'strconv.Atoi: parsing "{digits}": value out of range'
            raise PolicyValueError(f"unable to parse duration {_quoted(rest)}: {inner}")
        size = _UNITS.get(unit)
        if size is None:
            raise PolicyValueError(
                f"duration has unknown unit {_quoted(unit)} - use 'd', 'h', 'm' or 's', eg '1d' or '30s'"
            )
        if last and size >= last:
            raise PolicyValueError(
                f"duration has unit {_quoted(unit)} out of order - units need to be ordered from largest to smallest"
                " - eg '1d3h2m'"
            )
        total, at, last = total + value * size, match.end(), size
    return span(float(total))
