"""The base class of all errors."""

from __future__ import annotations

__all__ = ["RedriveError"]


class RedriveError(Exception):
    """An operation of redrive failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _first_line(type(self)))


def _first_line(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0]
