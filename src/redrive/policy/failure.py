"""A failed attempt as plain data.

An exception is reduced to the *names* of its classes, its message, and its hint or finality. A match by name over the
whole MRO gives the same answer as ``except``, also for rows of a database.

Signals (`redrive.errors.RetryAfter`, `redrive.errors.GiveUp`) also apply in the chain of explicit causes:
``raise Declined() from GiveUp("stolen card")`` is as final as the bare signal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, cast

from redrive.errors import Cancel, GiveUp, PolicyError, PolicyValueError, RetryAfter, Signal, Snooze
from redrive.policy.duration import parse_duration


class Stage(Enum):
    """The progress of a call before it failed (RFC 0049: Client Dispatch, Network Time, Response Received)."""

    NOT_SENT = "not_sent"
    """It was never sent: nothing can have happened."""
    IN_FLIGHT = "in_flight"
    """It was sent and no answer came: its effect is unknown."""
    ANSWERED = "answered"
    """The other side refused it; local exceptions have this stage, too."""


class Failure(NamedTuple):
    """One failed attempt, as plain data."""

    #: Qualified names of the exception's classes, most specific first, without ``object`` (and without
    #: ``BaseException`` for an ordinary ``Exception``); empty if there was no exception.
    types: tuple[str, ...]
    message: str = ""
    #: Name of a reason; see `redrive.policy.reason`.
    reason: str = "ERROR"
    #: How far the call got.
    stage: Stage = Stage.ANSWERED
    #: The delay that the other side asks for, from now: a lower bound. With the reason ``RETRY_AFTER`` the handler
    #: sets it, and it replaces the backoff.
    hint: timedelta | None = None
    #: The reason why the failure is final, if the handler declared it final; otherwise None.
    permanent: str | None = None
    #: True or False if a classifier, a signal or the engine has decided whether it may be retried; None leaves that
    #: to the policy's ``on``.
    candidate: bool | None = None
    #: For an exception group, the failures of its leaves, flattened.
    leaves: tuple[Failure, ...] = ()
    #: For a result, the indexes (left to right) of the policies in a combination that reject it by ``on_result``;
    #: None if they were not asked.
    rejected_by: tuple[int, ...] | None = None

    @property
    def error_type(self) -> str:
        """The qualified name of the exception's own class, or "" if there was no exception."""
        return self.types[0] if self.types else ""

    @classmethod
    def of(cls, exception: BaseException, *, reason: str | None = None, stage: Stage = Stage.ANSWERED) -> Failure:
        """Describe an exception.

        Reads redrive's signals in the exception and its explicit causes, and an attribute ``hint`` or ``retry_after``
        (a ``timedelta`` or seconds as a number; other values are ignored).

        Args:
            exception: the exception.
            reason: name of the reason; by default ``ERROR``, or that of a signal.
            stage: how far the call got.

        Raises:
            PolicyError: the handler raised `redrive.errors.RetryAfter` with an invalid duration.
            PolicyValueError: the stage does not exist; the value of a stage, as text, is converted.
        """
        if stage.__class__ is not Stage:
            stage = _stage(stage)
        kind = type(exception)
        known = names_of_class(kind)
        if (
            known[1]
            and reason is None
            and exception.__cause__ is None
            and getattr(exception, "hint", None) is None
            and getattr(exception, "retry_after", None) is None
            # By far the most; the rest is spared the questions that they make.
        ):
            try:
                message = str(exception)
            except Exception as error:  # noqa: BLE001 - a broken __str__ must not hide the failure that it belongs to
                message = _no_text(exception, error)
            return _new(cls, (known[0], message, "ERROR", stage, None, None, None, (), None))
        return _of_other(known[0], exception, reason, stage)

    @classmethod
    def of_result(cls, result: object, rejected_by: tuple[int, ...] | None = None) -> Failure:
        """Describe a result that counts as a failure (``on_result``).

        Its hint is an attribute ``hint`` or ``retry_after``, as of an exception, or the ``Retry-After`` of its
        ``headers``. A date there needs the ``Date`` of the response, to which it is relative.
        """
        import reprlib

        hint = _hint(result) or _header_hint(result)
        text = f"result {reprlib.repr(result)}"
        return cls((), text, "RESULT", hint=hint, candidate=True, rejected_by=rejected_by)


def _stage(value: object) -> Stage:
    try:
        return Stage(value)
    except ValueError as error:
        raise PolicyValueError(f"stage={value!r}: it can be {', '.join(str(each.value) for each in Stage)}") from error


_new = tuple.__new__


def qualified_name(cls: type) -> str:
    """Return the name of a class in policies: ``builtins.OSError``, ``httpx.ReadTimeout``."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _names_of_class(cls: type[BaseException]) -> tuple[tuple[str, ...], bool]:
    hidden = {object, BaseException} if issubclass(cls, Exception) else {object}
    types = tuple(qualified_name(base) for base in cls.__mro__ if base not in hidden)
    return types, not issubclass(cls, Signal | BaseExceptionGroup)


# The cache is bounded, because a program that creates classes at run time must not fill the memory.
# Return `Failure.types` for a class of exceptions, and True if it is neither a signal nor a group.
names_of_class = cast("Callable[[type[BaseException]], tuple[tuple[str, ...], bool]]", lru_cache(1024)(_names_of_class))


def _of_other(types: tuple[str, ...], exception: BaseException, reason: str | None, stage: Stage) -> Failure:
    """Describe a group, or an exception with a hint or with a cause."""
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


def _header_hint(response: object) -> timedelta | None:
    """Return the ``Retry-After`` of a response; None if it has none that can be read without a clock."""
    headers = getattr(response, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    from redrive.policy import hints

    value, date = headers.get("Retry-After"), headers.get("Date")
    if not isinstance(value, str):
        return None
    if value.strip().isdigit():
        return hints.retry_after(value, now=hints.EPOCH).delay
    if not isinstance(date, str) or hints.http_date(date.strip(), now=hints.EPOCH) is None:
        return None
    return hints.retry_after(value, now=hints.EPOCH, response_date=date).delay


def _hint(failed: object) -> timedelta | None:
    value = getattr(failed, "hint", None)
    if value is None:
        value = getattr(failed, "retry_after", None)
        if value is None:
            return None
    # Database drivers have a text for users under the same name.
    if isinstance(value, str):
        return None
    try:
        return parse_duration(value)
    except PolicyError:
        return None


def _signalled(plain: Failure, exception: BaseException, *, given: str | None) -> Failure:
    """Apply the first signal in the chain of explicit causes to a failure."""
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
    """Describe a group: it is final if a leaf is final, and its hint is the longest of its leaves."""
    leaves = tuple(Failure.of(leaf, stage=plain.stage) for leaf in flatten(group))
    final = [leaf.permanent for leaf in leaves if leaf.permanent is not None]
    hints = [leaf.hint for leaf in leaves if leaf.hint is not None]
    return plain._replace(
        leaves=leaves, permanent=final[0] if final else None, hint=max(hints) if hints else plain.hint
    )


def flatten(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the leaves of an exception group, in order."""
    flat: list[BaseException] = []
    waiting = list(reversed(group.exceptions))
    while waiting:
        leaf = waiting.pop()
        if isinstance(leaf, BaseExceptionGroup):
            waiting.extend(reversed(leaf.exceptions))
        else:
            flat.append(leaf)
    return flat
