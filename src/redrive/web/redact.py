"""Removal of secret values from what a page shows. PURE.

Values are found by their key, at any depth, and then removed from error texts and tracebacks of the same job too: an
error often repeats the arguments of the call that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

#: What replaces a secret value.
REDACTED: Final = "[redacted]"

# Parts of keys, compared without separators and in lower case.
_SECRET: Final = re.compile(
    r"password|passwd|passphrase|secret|token|apikey|authori[sz]ation|credential|cookie|session(?:id)?$|privatekey"
    r"|^card$|^cardn(?:o|um|umber)$|^pan$|^cvv|^cvc|^iban|^ssn$|^pin$"
)
_SEPARATORS: Final = re.compile(r"[^a-z0-9]")

# A shorter value, such as a PIN of 4 digits, also occurs by chance in other texts.
_SHORTEST: Final = 4


def is_secret(key: str) -> bool:
    """Return True if values under this key are secret."""
    return _SECRET.search(_SEPARATORS.sub("", key.lower())) is not None


def redacted(value: object) -> object:
    """Return a value of JSON with all secret values replaced."""
    if isinstance(value, dict):
        return {key: REDACTED if is_secret(str(key)) else redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return value


def secrets_of(value: object) -> frozenset[str]:
    """Return the secret texts and numbers in a value of JSON, as texts."""
    return frozenset(each for each in _secrets(value, inside=False) if len(each) >= _SHORTEST)


def texts_of(value: object) -> frozenset[str]:
    """Return all texts and numbers in a value of JSON, as texts."""
    return frozenset(each for each in _secrets(value, inside=True) if len(each) >= _SHORTEST)


def _secrets(value: object, *, inside: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _secrets(each, inside=inside or is_secret(str(key)))
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each, inside=inside)
    elif inside and value is not None and not isinstance(value, bool):
        yield str(value)


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text with these secrets replaced, the longest first."""
    for each in sorted(secrets, key=len, reverse=True):
        text = text.replace(each, REDACTED)
    return text


def decoded(raw: bytes | None) -> object:
    """Return a stored document as a value; text that is no JSON is returned as a text."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode(errors="replace")
