"""Exceptions as outcomes that can be stored."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import CodeType, TracebackType
from typing import ParamSpec, TypeVar

from redrive.engine.outcome import Failed
from redrive.errors import PolicyError, SoftTimeout
from redrive.errors.foreign import is_a
from redrive.policy import Failure, Stage
from redrive.policy.classify import matches
from redrive.policy.failure import Lasting
from redrive.policy.known import describe

P = ParamSpec("P")
R = TypeVar("R")

ERROR_TEXT = 4_000
TRACEBACK_TEXT = 16_000
"""Characters that are stored: the first ones of an error, the last ones of a traceback."""

PROGRAMMING = "PROGRAMMING_ERROR"
"""The reason of a failure that only another version of the code can repair."""

# A `TypeError` or a `ValueError` may come from the data, which can be other data in the next attempt.
_BUGS = frozenset(
    {
        *(f"builtins.{kind.__name__}" for kind in (AttributeError, ImportError, NameError, SyntaxError)),
        "redrive.errors.FlowMisused",
    }
)
# Subclasses of `SyntaxError` that describe a document.
_DATA = frozenset({"xml.etree.ElementTree.ParseError", "lxml.etree.LxmlSyntaxError"})

_OURS = ("redrive.runtime.", __name__)
"""The modules that call handlers, bodies and steps."""


class ExitInThread(Exception):
    """Carries a `GeneratorExit` out of a thread."""

    def __init__(self, error: GeneratorExit) -> None:
        super().__init__()
        self.error = error


def carried(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of the user in a thread; an error that a future cannot carry becomes another one."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # A future cannot carry this one: its waiter would wait forever.
        raise RuntimeError("the function raised StopIteration") from error
    except GeneratorExit as error:
        # A task that receives this one from a future closes its coroutines instead of raising it in them.
        raise ExitInThread(error) from error


def failed(error: BaseException) -> Failed:
    """Return the failure for an exception of a handler, or of `App.fail`."""
    try:
        failure, lines = _described(error)
    except BaseException as odd:  # noqa: BLE001 - methods of a user's exception may raise anything
        failure, lines = _undescribed(error, odd)
    text = clean("".join(lines), -TRACEBACK_TEXT)
    final = None if failure.permanent is None else clean(failure.permanent, ERROR_TEXT)
    return Failed(failure._replace(message=clean(failure.message, ERROR_TEXT), permanent=final), text)


def _described(error: BaseException) -> tuple[Failure, list[str]]:
    try:
        failure = _failure(error)
    except PolicyError as bad_delay:
        failure = Failure.of(bad_delay)
    return failure, _formatted(error)


# In an outage, thousands of attempts fail at the same instructions of the same code. To format their frames would take
# longer than the rest of an attempt, mostly for the marks below a part of a line.
# Code objects of two files may be equal, so the name of the file is a part of the key.
_frames: dict[tuple[str, CodeType, int], str] = {}
_FRAMES = 5_000

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def _formatted(error: BaseException) -> list[str]:
    """Return the text of `traceback.format_exception`, from the frame of the handler on."""
    parts: list[str] = []
    last, frames, seen = error, _users(error.__traceback__), {id(error)}
    while (text := _alone(last, frames)) is not None:
        parts.append(text)
        joint, earlier = (_CONTEXT, last.__context__) if last.__cause__ is None else (_CAUSE, last.__cause__)
        if earlier is None or (joint is _CONTEXT and last.__suppress_context__):
            return parts[::-1]
        if id(earlier) in seen:
            break
        parts.append(joint)
        seen.add(id(earlier))
        last, frames = earlier, earlier.__traceback__
    return traceback.format_exception(type(error), error, _users(error.__traceback__))


def _alone(error: BaseException, frames: TracebackType | None) -> str | None:
    """Return the text of an exception without those that it is chained to; None if frames repeat, or for a group."""
    places = list(_walked(frames))
    codes = [each.tb_frame.f_code for each in places]
    keys = [(code.co_filename, code, each.tb_lasti) for code, each in zip(codes, places, strict=True)]
    if not keys or len(set(keys)) < len(keys) or is_a(error, BaseExceptionGroup):
        return None
    if len(_frames) > _FRAMES:
        _frames.clear()
    texts = [_frames.get(key) or _frames.setdefault(key, _frame(each)) for key, each in zip(keys, places, strict=True)]
    # The function `traceback.format_exception_only` reads the frames of all exceptions in the chain.
    end = traceback.TracebackException(type(error), error, None, limit=0, compact=True).format_exception_only()
    return "".join(["Traceback (most recent call last):\n", *texts, *end])


def _walked(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next


def _frame(place: TracebackType) -> str:
    """Return the lines of one frame."""
    return "".join(traceback.format_tb(place, limit=1))


def _undescribed(error: BaseException, odd: BaseException) -> tuple[Failure, list[str]]:
    """Describe an exception that cannot be read, by its classes and its frames."""
    types = tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__ if kind is not object)
    message = f"<no message: reading {types[0]} raised {type(odd).__name__}>"
    # The attribute look-up of the user's class may raise.
    frames = BaseException.__dict__["__traceback__"].__get__(error)
    return Failure(types, message), [*traceback.format_tb(_users(frames)), message]


def can_pass(error: BaseException) -> bool:
    """Return True if a policy without names retries an exception of a handler: another attempt can succeed."""
    return matches(None, "all", _failure(error))


def _failure(error: BaseException) -> Failure:
    if is_a(error, SoftTimeout):
        # The handler was interrupted at any point, as by the hard timeout: the effect of its call is unknown.
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    if type(error) is TypeError and _is_of_the_call(error):
        return programming_error(Failure.of(error), "the handler cannot be called with these arguments")
    return _judged(describe(error))


def _judged(failure: Failure) -> Failure:
    """Return a failure with the verdict on it if it is a programming error, or has one among its leaves."""
    if failure.leaves:
        leaves = tuple([_judged(leaf) for leaf in failure.leaves])
        reasons = {leaf.reason for leaf in leaves}
        return failure._replace(leaves=leaves, reason=PROGRAMMING if PROGRAMMING in reasons else failure.reason)
    if _BUGS.isdisjoint(failure.types) or not _DATA.isdisjoint(failure.types):
        return failure
    is_settled = failure.reason != "ERROR" or failure.permanent is not None or failure.candidate is not None
    return failure if is_settled else programming_error(failure, "the code is wrong")


def programming_error(failure: Failure, what: str) -> Failure:
    """Return the failure of code that would fail in each attempt until it is changed."""
    name = failure.error_type.removeprefix("builtins.")
    why = f"{PROGRAMMING} ({name}): {what}, so another attempt would fail alike; correct it, then redrive"
    return failure._replace(reason=PROGRAMMING, lasting=Lasting(why))


def _is_of_the_call(error: BaseException) -> bool:
    """Return True if an error was raised and no code of the user has run: the handler does not take the arguments."""
    names = [each.tb_frame.f_globals.get("__name__") for each in _walked(error.__traceback__)]
    return bool(names) and all(str(name).startswith("redrive.") for name in names)


def _users(frames: TracebackType | None) -> TracebackType | None:
    """Remove the frames that lead to the handler, which are the same for every error; an error of redrive keeps all."""
    rest = frames
    while rest is not None and str(rest.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        rest = rest.tb_next
    return rest or frames


def permanent(reason: str, why: str) -> Failed:
    """Return a failure that no retry can repair. The reason is one upper-case word."""
    return Failed(Failure((), clean(why, ERROR_TEXT), reason, permanent=clean(why, ERROR_TEXT)))


def clean(value: object, limit: int) -> str:
    """Replace lone surrogates, and keep ``limit`` characters at the beginning, or at the end if it is negative."""
    text = str(value).encode("utf-8", "replace").decode()
    return text[limit:] if limit < 0 else text[:limit]
