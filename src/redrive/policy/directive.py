"""The retry directive of FTL's retry design: ``[<retries=10>] <min-backoff> [<max-backoff>] [catch <task>]``.

The number counts *retries*, so that ``attempts`` is one more. The backoff doubles from the minimum to the maximum; the
default of the maximum is the larger of the minimum and one hour. A fixed interval is written ``5s 5s``.

This reader also accepts ``ms``, any length, and ``0`` alone, and its errors show a caret. `redrive.policy.ftl` accepts
what FTL accepts, with FTL's error texts. A directive may be pasted with its introduction, from Go (``//ftl:retry``) or
from FTL's schema (``+retry``); its parts may then have names: ``+retry attempts=10 min=5s max=1m``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from redrive.errors import PolicyError, PolicySyntaxError, PolicyValueError
from redrive.policy.backoff_kinds import Exponential
from redrive.policy.decider import Decider
from redrive.policy.duration import format_duration, in_units, read, span
from redrive.policy.fields import DIRECTIVE_SETS, FIELDS
from redrive.policy.value import Field, NamedTuple

_syntax_error = PolicySyntaxError.with_caret
_value_error = PolicyValueError.with_caret
DEFAULT_RETRIES = 10
_DOUBLES = 2
# The largest count of FTL: a signed integer of 64 bits.
_MOST = 2**63 - 1
DEFAULT_MINIMUM = timedelta(seconds=1)
DEFAULT_MAXIMUM = timedelta(hours=1)
# Numbers in words, which a directive does not have: only a message uses them.
NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_FORM = "[<retries>] <min-backoff> [<max-backoff>] [catch <task>], for example: 10 5s 1m catch recover"


_INTRODUCTIONS = ("//ftl:retry", "ftl:retry", "+retry")
# The names of parts, in the order of the parts. FTL's documents call the number of retries attempts.
_PARTS = {
    "attempts": 0, "count": 0, "retries": 0, "min": 1, "min-backoff": 1, "max": 2, "max-backoff": 2, "catch": 3,
}  # fmt: skip
_MINIMUM, _MAXIMUM, _CATCH = 1, 2, 3
# The values of parts before the catch, in the order of the parts: what they are called, and an example.
_KINDS = (("a number of retries", "attempts=10"), ("a minimum backoff", "min=5s"), ("a maximum backoff", "max=1m"))


class Directive(NamedTuple):
    """The values of a directive, defaults filled in."""

    retries: int
    minimum: timedelta
    maximum: timedelta
    catch: str | None


class _Word(NamedTuple):
    text: str
    at: int


def read_directive(text: str) -> Directive:
    """Read a directive in redrive's own form."""
    words = _words(text)
    if words[0].text in _INTRODUCTIONS:
        words = _positional(text, words[1:])
    begin = words[0].at
    retries = _retries(text, words)
    minimum = _backoff(text, words, first=True)
    maximum = _backoff(text, words, first=False) if minimum is not None else None
    catch = _catch(text, words)
    if words:
        if minimum is None and catch is None and words[0].text.lower() != "catch":
            raise _not_a_backoff(text, words[0], retries)
        raise _left_over(text, words[0], maximum=maximum, catch=catch)
    count = DEFAULT_RETRIES if retries is None else count_of(retries.text) or 0
    if minimum is None and count:
        raise _no_minimum(text, begin if retries is None else retries.at + len(retries.text))
    if minimum is not None and count == 0 and catch is None:
        problem = "a backoff without retries and without a catch task has nothing to delay"
        raise _value_error(text, minimum[1].at, problem, "leave it out, or name a catch task")
    low = DEFAULT_MINIMUM if minimum is None else minimum[0]
    high = max(low, DEFAULT_MAXIMUM) if maximum is None else maximum[0]
    if maximum is not None and high < low:
        problem = f"the maximum backoff {maximum[1].text} is shorter than the minimum"
        raise _value_error(text, maximum[1].at, problem, f"write at least {format_duration(low)}")
    return Directive(count, low, high, catch)


def _words(text: str) -> list[_Word]:
    words, start = [], None
    for at, char in enumerate(text + " "):
        if char.isspace():
            if start is not None:
                words.append(_Word(text[start:at], start))
            start = None
        elif start is None:
            start = at
    if not words:
        raise _syntax_error(text, 0, "the retry directive is empty", f"write {_FORM}")
    return words


def _positional(text: str, words: list[_Word]) -> list[_Word]:
    """Return the words of a pasted directive without the names of its parts, in the order of the parts."""
    if not words:
        raise _syntax_error(text, len(text), "the retry directive is empty", f"write {_FORM}")
    if not any("=" in word.text for word in words):
        return words
    parts: dict[int, list[_Word]] = {}
    for word in words:
        name, equals, value = word.text.partition("=")
        rank = _PARTS.get(name) if equals and value else None
        if rank is None or rank in parts:
            problem = f"{word.text!r} is not a part with a name that is still free"
            raise _syntax_error(text, word.at, problem, "write, for example: attempts=10 min=5s max=1m catch=recover")
        found = _Word(value, word.at + len(name) + 1)
        if rank < _CATCH:
            _check_kind(text, found, rank)
        parts[rank] = [_Word(name, word.at), found] if rank == _CATCH else [found]
    counted = [count_of(word.text) for word in parts.get(0, ())]
    if _MINIMUM not in parts and (_MAXIMUM in parts or counted != [0]):
        raise _no_named_minimum(text, parts)
    return [word for rank in sorted(parts) for word in parts[rank]]


def _check_kind(text: str, value: _Word, rank: int) -> None:
    """Refuse the value of a part that would be read as another part if it had no name."""
    found = _backoff(text, [value], first=True) if rank else _retries(text, [value])
    if found is None:
        kind, example = _KINDS[rank]
        raise _syntax_error(text, value.at, f"{value.text!r} is not {kind}", f"write, for example: {example}")


def pasted(text: str) -> str:
    """Return a directive without the introduction with which it stands in Go or in FTL's schema."""
    first, _, rest = text.strip().partition(" ")
    return rest if first in _INTRODUCTIONS else text


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def count_of(digits: str) -> int | None:
    """Return the value of decimal digits, or None if it is above 2**63 - 1.

    The length is checked first: Python takes quadratic time for long numbers, and refuses more than 4,300 digits.
    """
    short = digits.lstrip("0") or "0"
    value = int(short) if len(short) <= len(str(_MOST)) else _MOST + 1
    return value if value <= _MOST else None


def _retries(text: str, words: list[_Word]) -> _Word | None:
    word = words[0]
    if _is_number(word.text):
        if count_of(word.text) is None:
            raise _value_error(text, word.at, "the number of retries is too large", f"write at most {_MOST}")
        return words.pop(0)
    if word.text[0] in "+-" and word.text[1:2].isdigit():
        problem = "the number of retries has no sign" if word.text[0] == "+" else "the number of retries is negative"
        raise _syntax_error(text, word.at, problem, "write 0 or more, without a sign")
    if word.text.replace(".", "", 1).isdecimal() and word.text.isascii():
        raise _syntax_error(text, word.at, "the number of retries is not whole", "write a whole number")
    return None


def _backoff(text: str, words: list[_Word], *, first: bool) -> tuple[timedelta, _Word] | None:
    """Return the next word as a duration if it begins like one."""
    if not words or not (words[0].text[0].isdigit() or words[0].text[0] in "+-."):
        return None
    word = words[0]
    if _is_number(word.text):
        spoken = in_units(f"{word.text} {words[1].text}") if len(words) > 1 else None
        if spoken is not None:
            problem = f"there is a blank between {word.text} and its unit"
            hint = f"write {spoken}: in a directive, blanks stand between durations"
            raise _syntax_error(text, words[1].at - 1, problem, hint)
        hint = "" if first else "; the number of retries stands first"
        problem = f"the duration {word.text} has no unit"
        raise _syntax_error(text, word.at + len(word.text), problem, f"write {word.text}s for seconds{hint}")
    words.pop(0)
    return span(read(word.text, text, word.at) / 1000), word


def _catch(text: str, words: list[_Word]) -> str | None:
    if not words or words[0].text != "catch":
        return None
    words.pop(0)
    if not words:
        raise _syntax_error(text, len(text), "the name of the catch task is missing", "write catch <task>")
    word = words.pop(0)
    parts = word.text.split(".")
    at = word.at
    for number, part in enumerate(parts):
        if number == 2:  # noqa: PLR2004 - module.task has two
            problem = "a catch task is named by one name, or by a module and a name"
            raise _syntax_error(text, at - 1, problem, "write catch <task> or catch <module>.<task>")
        if not part.isidentifier():
            raise _syntax_error(text, at, f"{part!r} is not a name", "write catch <task> or catch <module>.<task>")
        at += len(part) + 1
    return word.text


def _left_over(text: str, word: _Word, *, maximum: object, catch: str | None) -> PolicySyntaxError:
    if word.text.lower() == "catch":
        return _syntax_error(text, word.at, f"the keyword {word.text!r} is not lower case", "write catch")
    if catch is not None:
        return _syntax_error(text, word.at, f"there is nothing after the catch task, but {word.text!r}", "end here")
    if maximum is not None:
        return _syntax_error(text, word.at, f"only a catch can follow, not {word.text!r}", "write catch <task>, or end")
    return _syntax_error(text, word.at, f"{word.text!r} is not a maximum backoff or catch <task>", f"write {_FORM}")


def _not_a_backoff(text: str, word: _Word, retries: _Word | None) -> PolicySyntaxError:
    spoken = None if retries is None else in_units(f"{retries.text} {word.text}")
    valid = _FORM
    if spoken is not None:
        valid = f"{spoken}, or with the number of retries before it, for example: 10 {spoken}"
    elif word.text.lower() in NUMBERS:
        valid = f"numbers in digits: {NUMBERS.index(word.text.lower())}"
    return _syntax_error(text, word.at, f"{word.text!r} is not a minimum backoff", f"write {valid}")


def _no_minimum(text: str, at: int) -> PolicySyntaxError:
    return _syntax_error(text, at, "a minimum backoff is missing", "write a duration here, for example 5s")


def _no_named_minimum(text: str, parts: Mapping[int, Sequence[_Word]]) -> PolicySyntaxError:
    low = timedelta(seconds=5)
    if _MAXIMUM in parts:
        maximum = parts[_MAXIMUM][0]
        low = min(low, span(read(maximum.text, text, maximum.at) / 1000))
    at = next((parts[rank][0].at for rank in (_MAXIMUM, _CATCH) if rank in parts), len(text.rstrip()))
    valid = f"write, for example: min={format_duration(low)}"
    return _syntax_error(text, at, "a minimum backoff is missing", valid)


def _meaning(name: str, field: Field) -> str:
    if name == "budget":
        return "a directive has the default of its place"
    return f"a directive always means {name}={field.directive!r}"


def write_directive(policy: Decider) -> str:
    """Return the directive of a policy; see `redrive.policy.Policy.directive`."""
    backoff = policy.backoff
    if not isinstance(backoff, Exponential) or backoff.factor != _DOUBLES or backoff.maximum is None:
        raise _inexpressible("backoff", "the backoff of a directive doubles, from a minimum to a maximum")
    if policy.retries is None:
        raise _inexpressible("attempts", "a directive has a number of retries")
    if not policy.deadline_given:
        raise _inexpressible("deadline", "a directive always means deadline=None")
    if policy.max_hint_given:
        raise _inexpressible("max_hint", "a directive has the default of its place")
    for name, field in FIELDS.items():
        is_given = name == "budget" and policy.budget_given
        if name not in DIRECTIVE_SETS and (is_given or getattr(policy, name) != field.directive):
            raise _inexpressible(name, _meaning(name, field))
    if policy.catch is not None and policy.catch.count(".") > 1:
        raise _inexpressible("catch", "a directive names one task, or a module and a task")
    found = Directive(policy.retries, span(backoff.initial), span(backoff.maximum), policy.catch)
    text = " ".join(_words_of(found))
    try:
        exact = found == read_directive(text) and _exactly(backoff, found)
    except PolicyError as error:
        raise _inexpressible("backoff", error.problem) from None
    if not exact:
        raise _inexpressible("backoff", "a directive has whole milliseconds")
    return text


def _exactly(backoff: Exponential, found: Directive) -> bool:
    return (backoff.initial, backoff.maximum) == (found.minimum.total_seconds(), found.maximum.total_seconds())


def _words_of(found: Directive) -> list[str]:
    words = [str(found.retries)]
    usual = max(found.minimum, DEFAULT_MAXIMUM)
    if found.retries or found.minimum != DEFAULT_MINIMUM or found.maximum != usual:
        words.append(format_duration(found.minimum))
        if found.maximum != usual:
            words.append(format_duration(found.maximum))
    return words if found.catch is None else [*words, "catch", found.catch]


def _inexpressible(field: str, why: str) -> PolicyValueError:
    return PolicyValueError(f"a directive cannot express this policy, because of {field}: {why}")
