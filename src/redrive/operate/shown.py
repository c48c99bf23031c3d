"""What a site shows of the arguments, the result and the progress of a job, and of texts that may repeat them. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from redrive.engine.records import ENCODED
from redrive.engine.secrets import REDACTED, decoded, is_secret, secrets_of, texts_of, without
from redrive.operate.exchange import Payloads

#: Bytes of a value that are shown.
LARGEST: Final = 64 * 1024

NO_KEY: Final = "encoded: this process cannot decode it"
"""What is shown of a document that the codec of the app has encoded, in a process without the codec or its key."""


class Shown(msgspec.Struct, frozen=True, gc=False):
    """The values of a job as a site shows them.

    Attributes:
        secrets: texts that are not shown.
        others: further values, such as the results of steps.
    """

    payload: Any
    result: Any
    progress: Any
    secrets: frozenset[str]
    others: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls,
        kind: Payloads,
        payload: bytes | None = None,
        result: bytes | None = None,
        progress: bytes | None = None,
        *,
        others: Iterable[bytes | None] = (),
        repeated: Iterable[bytes] = (),
    ) -> Shown:
        """Return what is shown of stored documents; texts may also repeat further ones."""
        values = [_value(each) for each in (payload, result, progress, *others)]
        texts = [*values, *map(decoded, repeated)]
        secrets = frozenset[str]()
        if kind is Payloads.HIDDEN:
            hidden = (None,) * (len(values) - 3)
            return cls(None, None, None, secrets.union(*map(texts_of, texts)), hidden)
        if kind is Payloads.REDACTED:
            secrets = secrets.union(*map(secrets_of, texts))
            values = [redacted(each) for each in values]
        first, second, third, *more = (_cut(without_texts(each, secrets)) for each in values)
        return cls(first, second, third, secrets, tuple(more))

    def clear(self, text: str | None) -> str | None:
        """Return a text without the values that are not shown."""
        return None if text is None else without(text, self.secrets)


def _value(raw: bytes | None) -> object:
    return NO_KEY if raw is not None and raw.startswith(ENCODED) else decoded(raw)


def redacted(value: object) -> object:
    """Return a value of JSON with all secret values replaced."""
    if isinstance(value, dict):
        return {key: REDACTED if is_secret(str(key)) else redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return value


def without_texts(value: object, secrets: frozenset[str]) -> object:
    """Return a value of JSON without texts that are secret elsewhere in the same job, such as a returned password."""
    if isinstance(value, str):
        return without(value, secrets)
    if isinstance(value, dict):
        return {key: without_texts(each, secrets) for key, each in value.items()}
    return [without_texts(each, secrets) for each in value] if isinstance(value, list) else value


def _cut(value: object) -> object:
    raw = msgspec.json.encode(value)
    return value if len(raw) <= LARGEST else f"{raw[:LARGEST].decode(errors='ignore')}... ({len(raw):,} bytes)"
