"""What jobs are found by: values of arguments, which become tags, and comparisons of numbers. PURE.

A task names fields of its arguments, such as ``search=["invoice", "lines.sku"]``. An enqueue writes their values as
tags, which have an index. A value is a text or a number; an object has none, and a list has those of its members.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from redrive.engine.secrets import REDACTED, decoded, is_secret, secrets_of, without
from redrive.errors import ConfigurationError

#: The longest tag of a value, in UTF-8.
LONGEST_TAG: Final = 64

#: The values of one job that become tags at most; a list may have any number.
MOST_TAGS: Final = 100

# A longer value has its beginning, and a digest of the whole.
_DIGEST: Final = 8
_HEAD: Final = LONGEST_TAG - len("~") - 2 * _DIGEST

# Any text, at the beginning or the end of the value that is searched.
_ANY: Final = "*"


def plain(text: str) -> str:
    """Return a value as it is compared: composed characters, without spaces around it."""
    return unicodedata.normalize("NFC", text).strip()


def tag_of(text: str) -> str | None:
    """Return the tag of a value; None for one that has no tag, because no database could store it or it is empty."""
    text = plain(text)
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return None
    if not raw or b"\0" in raw:
        return None
    if len(raw) <= LONGEST_TAG:
        return text
    return f"{raw[:_HEAD].decode(errors='ignore')}~{hashlib.blake2b(raw, digest_size=_DIGEST).hexdigest()}"


def tags_of(arguments: bytes, fields: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of these fields of arguments, which are JSON."""
    value = msgspec.json.decode(arguments)
    texts = (text for field in fields for each in _members(value, field.split(".")) for text in _texts(each))
    return tuple(dict.fromkeys(tag for text in texts if (tag := tag_of(text)) is not None))[:MOST_TAGS]


def tags_of_all(arguments: bytes | None) -> frozenset[str]:
    """Return the tags that any value of arguments could have."""
    found = _all_texts(decoded(arguments))
    return frozenset(tag for text in found if (tag := tag_of(text)) is not None)


def _all_texts(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _all_texts(each)
    else:
        yield from _texts(value)


def _members(value: object, path: Sequence[str]) -> Iterator[object]:
    if isinstance(value, list):
        for each in value:
            yield from _members(each, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _members(value[path[0]], path[1:])


def has_value(document: bytes, field: str, text: str) -> bool:
    """Return True if a field of a document, which may be a part of a larger one such as an event, has a value."""
    path, wanted = field.split("."), plain(text)
    found = (each for part in _objects(msgspec.json.decode(document)) for each in _members(part, path))
    return any(plain(each) == wanted for value in found for each in _texts(value))


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    """Yield a value and those in it that have members."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _objects(each)


def _texts(value: object) -> Iterator[str]:
    """Return a scalar as text; null and truth values are none, because they find nothing in particular."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def secret_part(field: str) -> str | None:
    """Return the part of the path of a field that dashboards redact; None if none is."""
    return next((part for part in field.split(".") if is_secret(part)), None)


class ValueSearch:
    """A search for a value in arguments, as they are shown: without secret values.

    Args:
        text: the whole value; ``*`` at its beginning or end stands for any text.
    """

    def __init__(self, text: str) -> None:
        text = plain(text)
        self._before = text.startswith(_ANY)
        self._after = text.endswith(_ANY) and len(text) > 1
        self._text = text[int(self._before) : len(text) - int(self._after)]

    @property
    def tag(self) -> str | None:
        """The tag of the value; None for a part of one."""
        return None if self._before or self._after else tag_of(self._text)

    def finds(self, arguments: bytes | None, documents: Iterable[bytes]) -> bool:
        """Return True if one of the arguments has the value.

        Args:
            arguments: as JSON; None for a job without any.
            documents: of the job, as JSON: what is secret in one is not found in the arguments either.
        """
        if arguments is None:
            return False
        secrets = frozenset[str]().union(*(secrets_of(decoded(each)) for each in documents))
        return any(self._is(without(each, secrets)) for each in _open(decoded(arguments)))

    def _is(self, value: str) -> bool:
        value = plain(value)
        if REDACTED in value:
            # What is left of a value says where its secret was.
            return False
        if self._before:
            return self._text in value if self._after else value.endswith(self._text)
        return value.startswith(self._text) if self._after else value == self._text


def _open(value: object) -> Iterator[str]:
    """Return the texts and numbers in a value of JSON that are not under a secret key."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not is_secret(str(key)):
                yield from _open(each)
    elif isinstance(value, list):
        for each in value:
            yield from _open(each)
    else:
        yield from _texts(value)


# ------------------------------------------------------------------------------------------------------------ numbers

_OPERATORS: Final = (">=", "<=", ">", "<")


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """The whole numbers that are meant; None for no bound."""

    least: int | None = None
    most: int | None = None

    @classmethod
    def parse(cls, text: str, read: Callable[[str], int]) -> Bounds:
        """Read bounds; `read` reads a number, and raises an error if it is none."""
        operator = next((each for each in _OPERATORS if text.startswith(each)), "")
        number = read(text[len(operator) :].strip())
        match operator:
            case ">":
                return cls(least=number + 1)
            case ">=":
                return cls(least=number)
            case "<":
                return cls(most=number - 1)
            case "<=":
                return cls(most=number)
            case _:
                return cls(number, number)


def whole(text: str) -> int:
    """Read a number of attempts."""
    if not text.isascii() or not text.isdigit() or len(text) > len("999999999"):
        raise ConfigurationError(f"expected a number such as 3 or >3, got {text[:40]!r}")
    return int(text)
