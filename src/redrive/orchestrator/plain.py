"""Records and events as plain data: what a JSON encoder takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import isfinite

__all__ = ["milliseconds", "plain"]

_DEEPEST = 20


def milliseconds(span: timedelta | None) -> float | None:
    """Return a span as a number of milliseconds; None stays None."""
    return None if span is None else span / timedelta(milliseconds=1)


def plain(value: object, depth: int = 0) -> object:
    """Return a value as text, numbers, booleans, None, lists and dicts with text keys.

    Args:
        value: what a caller has put into the context of a request.
        depth: how many containers are around it.

    Returns:
        The same if it is plain already; the ``repr`` of what JSON does not have, of what is nested too deeply, and of
        infinite numbers.
    """
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    return repr(value)
