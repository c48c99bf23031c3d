"""JSON from a server, read so that one odd value does not cost the rest."""

from __future__ import annotations

import json
from collections import Counter

_LONGEST = 80


class Pairs(dict[str, object]):
    """An object of a document, with the keys that it has more than once."""

    #: Keys that occur more than once; the last value of each counts.
    twice: tuple[str, ...] = ()

    @classmethod
    def of(cls, members: list[tuple[str, object]]) -> Pairs:
        """Make it of its members, in order."""
        made = cls(members)
        if len(made) < len(members):
            made.twice = tuple(key for key, count in Counter(key for key, _ in members).items() if count > 1)
        return made


def decode(text: bytes | str) -> object:
    """Read a document; its objects are `Pairs`.

    A number of more digits than Python turns into an ``int`` becomes a ``float``. Raise ValueError if it is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=Pairs.of, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def quoted(value: object) -> str:
    """Return a value as JSON, shortened, for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _whole(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)
