"""A failure as data: what `Policy.decide` needs to know about what went wrong, and nothing that cannot be stored.

An exception is reduced to the *names* of its classes (most specific first), its message, and what it says about itself:
a hint when to come back, or that it is final. Matching by name over the whole MRO gives the same answer as ``except``
would, for live exceptions and for rows read back from a database, where the class may no longer exist.

Signals (`redrive.errors.RetryAfter`, `redrive.errors.GiveUp`) count wherever they stand in the chain of explicit
causes: ``raise Declined() from GiveUp("stolen card")`` is as final as the bare signal.
"""

from __future__ import annotations

import reprlib
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from redrive.errors import Cancel, GiveUp, PolicyError, PolicyValueError, RetryAfter, Signal, Snooze
from redrive.policy.duration import parse_duration

__all__ = ["Failure", "Stage", "names_of_class", "qualified_name"]


class Stage(Enum):
    """How far a call got before it failed (RFC 0049: Client Dispatch, Network Time, Response Received)."""

    NOT_SENT = "not_sent"
    """It was never sent: nothing can have happened."""
    IN_FLIGHT = "in_flight"
    """It was sent and no answer came: nobody knows whether it took effect."""
    ANSWERED = "answered"
    """The other side said no (a local exception counts as that)."""


class Failure(NamedTuple):
    """One failed attempt, as plain data.

    Attributes:
        types: qualified names of the exception's classes, most specific first, without ``object`` (and without
            ``BaseException`` for an ordinary ``Exception``); empty if there was no exception.
        message: the text of the exception.
        reason: name of a reason; see `redrive.policy.reason`.
        stage: how far the call got.
        hint: when the other side wants to be asked again, counted from now: a floor of the delay. With the reason
            ``RETRY_AFTER`` the handler itself dictates it: then it replaces the backoff.
        permanent: why it is final, where the handler said so; otherwise None.
        candidate: whether it may be retried where that was settled before (a classifier, a signal, the engine); None
            leaves the question to the policy's ``on``.
        leaves: for an exception group, the failures of its leaves, flattened.
        rejected_by: for a result, the numbers of the policies in a combination whose ``on_result`` rejects it, counted
            from 0, left to right; None if that was not asked.
    """

    types: tuple[str, ...]
    message: str = ""
    reason: str = "ERROR"
    stage: Stage = Stage.ANSWERED
    hint: timedelta | None = None
    permanent: str | None = None
    candidate: bool | None = None
    leaves: tuple[Failure, ...] = ()
    rejected_by: tuple[int, ...] | None = None

    @property
    def error_type(self) -> str:
        """The qualified name of the exception's own class, or "" if there was no exception."""
        return self.types[0] if self.types else ""

    @classmethod
    def of(cls, exception: BaseException, *, reason: str | None = None, stage: Stage = Stage.ANSWERED) -> Failure:
        """Describe an exception.

        Reads the signals of redrive in the exception and its explicit causes, and an attribute ``hint`` or
        ``retry_after`` (a ``timedelta`` or seconds as a number; anything else is somebody else's attribute).

        Args:
            exception: what was raised.
            reason: name of the reason; by default ``ERROR``, or what a signal says.
            stage: how far the call got.

        Raises:
            PolicyError: the handler raised `redrive.errors.RetryAfter` with something that is no duration.
            PolicyValueError: there is no such stage; the value of one, as a text, is converted.
        """
        if stage.__class__ is not Stage:
            stage = _stage(stage)
        kind = type(exception)
        known = _KNOWN.get(kind) or names_of_class(kind)
        if (
            known[1]
            and reason is None
            and exception.__cause__ is None
            and getattr(exception, "hint", None) is None
            and getattr(exception, "retry_after", None) is None
        ):  # by far the most; the rest is spared the questions that they make
            try:
                message = str(exception)
            except Exception as error:  # noqa: BLE001 - a broken __str__ must not hide the failure that it belongs to
                message = _no_text(exception, error)
            return _new(cls, (known[0], message, "ERROR", stage, None, None, None, (), None))
        return _of_other(known[0], exception, reason, stage)

    @classmethod
    def of_result(cls, result: object, rejected_by: tuple[int, ...] | None = None) -> Failure:
        """Describe a result that counts as a failure (``on_result``).

        Args:
            result: what was returned.
            rejected_by: see the attribute; `Policy.classify_result` fills it in.
        """
        return cls((), f"result {reprlib.repr(result)}", "RESULT", candidate=True, rejected_by=rejected_by)


def _stage(value: object) -> Stage:
    try:
        return Stage(value)
    except ValueError as error:
        message = f"stage={value!r}: it can be {', '.join(str(each.value) for each in Stage)}"
        raise PolicyValueError(message) from error


_new = tuple.__new__
_KNOWN: dict[type, tuple[tuple[str, ...], bool]] = {}  # names of a class, and whether it is an ordinary one
_REMEMBERED = 1024  # classes; a program that makes classes on the fly must not fill the memory


def qualified_name(cls: type) -> str:
    """The name by which policies know a class: ``builtins.OSError``, ``httpx.ReadTimeout``."""
    return f"{cls.__module__}.{cls.__qualname__}"


def names_of_class(cls: type[BaseException]) -> tuple[tuple[str, ...], bool]:
    """What `Failure.types` is for a class of exceptions, and whether it is neither a signal nor a group."""
    if (known := _KNOWN.get(cls)) is not None:
        return known
    hidden = {object, BaseException} if issubclass(cls, Exception) else {object}
    types = tuple(qualified_name(base) for base in cls.__mro__ if base not in hidden)
    if len(_KNOWN) >= _REMEMBERED:
        _KNOWN.clear()
    known = _KNOWN[cls] = (types, not issubclass(cls, Signal | BaseExceptionGroup))
    return known


def _of_other(types: tuple[str, ...], exception: BaseException, reason: str | None, stage: Stage) -> Failure:
    """A group, or an exception that says something about itself or has a cause that does."""
    try:
        message = str(exception)
    except Exception as error:  # noqa: BLE001 - as above
        message = _no_text(exception, error)
    plain = Failure(types, message, reason or "ERROR", stage, _hint(exception))
    if isinstance(exception, BaseExceptionGroup):
        return _of_group(plain, exception)
    return _signalled(plain, exception, given=reason)


def _no_text(exception: BaseException, error: Exception) -> str:
    return f"<no message: {type(error).__name__} in {type(exception).__name__}.__str__>"


def _hint(exception: BaseException) -> timedelta | None:
    value = getattr(exception, "hint", None)
    if value is None:
        value = getattr(exception, "retry_after", None)
        if value is None:
            return None
    if isinstance(value, str):  # database drivers keep advice for people under the same name
        return None
    try:
        return parse_duration(value)
    except PolicyError:
        return None


def _signalled(plain: Failure, exception: BaseException, *, given: str | None) -> Failure:
    """What the first signal in the chain of explicit causes makes of a failure."""
    seen: set[int] = set()
    link: BaseException | None = exception
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, GiveUp):
            return plain._replace(permanent=link.why or "gave up", reason=given or "GAVE_UP")
        if isinstance(link, RetryAfter):
            return plain._replace(hint=parse_duration(link.delay), candidate=True, reason=given or "RETRY_AFTER")
        if isinstance(link, (Snooze, Cancel)):
            return plain._replace(candidate=False)
        link = link.__cause__
    return plain


def _of_group(plain: Failure, group: BaseExceptionGroup[BaseException]) -> Failure:
    """A group is as final as its most final leaf, and waits as long as its most patient one."""
    leaves = tuple(Failure.of(leaf, stage=plain.stage) for leaf in _flatten(group))
    final = [leaf.permanent for leaf in leaves if leaf.permanent is not None]
    hints = [leaf.hint for leaf in leaves if leaf.hint is not None]
    return plain._replace(
        leaves=leaves, permanent=final[0] if final else None, hint=max(hints) if hints else plain.hint
    )


def _flatten(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    flat: list[BaseException] = []
    waiting = list(reversed(group.exceptions))
    while waiting:
        leaf = waiting.pop()
        if isinstance(leaf, BaseExceptionGroup):
            waiting.extend(reversed(leaf.exceptions))
        else:
            flat.append(leaf)
    return flat
