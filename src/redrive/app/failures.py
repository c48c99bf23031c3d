"""What was raised, as an outcome that can be stored."""

from __future__ import annotations

import traceback
from types import TracebackType

from redrive.engine.outcome import Failed
from redrive.errors import PolicyError, SoftTimeout
from redrive.policy import Failure, Stage

__all__ = ["ERROR_TEXT", "TRACEBACK_TEXT", "clean", "failed", "permanent"]

ERROR_TEXT = 4_000
TRACEBACK_TEXT = 16_000
"""Characters that are kept: the end of a traceback is the part that matters."""

_OURS = (
    "redrive.runtime.executor",
    "redrive.runtime.soft_timeout",
    "redrive.runtime.outcomes",
    "concurrent.futures.thread",
)


def failed(error: BaseException) -> Failed:
    """Describe what was raised.

    Args:
        error: by a handler, or given to `App.fail`.

    Returns:
        The failure, with as much text as is kept.
    """
    try:
        failure, lines = _described(error)
    except BaseException as odd:  # noqa: BLE001 - methods of a foreign exception may raise anything
        failure, lines = _undescribed(error, odd)
    text = clean("".join(lines), -TRACEBACK_TEXT)
    final = None if failure.permanent is None else clean(failure.permanent, ERROR_TEXT)
    return Failed(failure._replace(message=clean(failure.message, ERROR_TEXT), permanent=final), text)


def _described(error: BaseException) -> tuple[Failure, list[str]]:
    try:
        failure = _failure(error)
    except PolicyError as bad_delay:
        failure = Failure.of(bad_delay)
    return failure, traceback.format_exception(type(error), error, _users(error.__traceback__))


def _undescribed(error: BaseException, odd: BaseException) -> tuple[Failure, list[str]]:
    """Describe an exception that cannot be read: by its classes, and where it was raised."""
    types = tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__ if kind is not object)
    message = f"<no message: reading {types[0]} raised {type(odd).__name__}>"
    frames = BaseException.__dict__["__traceback__"].__get__(error)  # not by the look-up of a foreign class
    return Failure(types, message), [*traceback.format_tb(_users(frames)), message]


def _failure(error: BaseException) -> Failure:
    if isinstance(error, SoftTimeout):
        # The handler was interrupted where it stood, as by the hard timeout: nobody knows how far its call got.
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return Failure.of(error)


def _users(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that lead to the handler: they are the same for every error."""
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in _OURS:
        frames = frames.tb_next
    return frames


def permanent(reason: str, why: str) -> Failed:
    """Describe what cannot become better by trying again.

    Args:
        reason: one upper-case word.
        why: what is wrong.

    Returns:
        The failure.
    """
    return Failed(Failure((), clean(why, ERROR_TEXT), reason, permanent=clean(why, ERROR_TEXT)))


def clean(said: object, limit: int) -> str:
    """Make text storable: lone surrogates replaced, and no longer than what people read.

    Args:
        said: the text.
        limit: characters to keep of its beginning; negative, of its end.

    Returns:
        The text.
    """
    text = str(said).encode("utf-8", "replace").decode()
    return text[limit:] if limit < 0 else text[:limit]
