"""A failed attempt as plain data.

An exception is reduced to the *names* of its classes, its message, and its hint or finality. A match by name over the
whole MRO gives the same answer as ``except``, also for rows of a database.

Signals (`redrive.errors.RetryAfter`, `redrive.errors.GiveUp`) also apply in the chain of explicit causes:
``raise Declined() from GiveUp("stolen card")`` is as final as the bare signal. The same holds for a called function
that is declared ``idempotent=False`` (`forbid_repetition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import cast

from redrive.errors import GiveUp, PolicyError, PolicyValueError, RetryAfter, Signal
from redrive.errors.foreign import attribute, cause_of, is_a, mark_of, set_mark
from redrive.policy.duration import parse_duration, parse_wait
from redrive.policy.stage import Stage, is_lost, origins, stage_of, stage_of_class
from redrive.policy.value import NamedTuple


class Lasting(NamedTuple):
    """The verdict on a failure that another attempt would meet again: only a policy that names it retries it."""

    #: The reason why another attempt is of no use; "" for the sentence of every failure that a policy does not retry.
    why: str = ""
    #: How far the call got, for a policy that retries the failure nevertheless: *in flight* if a repetition may have an
    #: effect of its own, although the call was answered.
    stage: Stage = Stage.ANSWERED


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
    #: Set by an integration or by a worker if another attempt would fail alike; otherwise None.
    lasting: Lasting | None = None
    #: The name of the called function that is declared ``idempotent=False`` and has raised the exception. If the
    #: failure is in flight, it is not repeated, whatever the policy allows.
    once: str | None = None

    @property
    def error_type(self) -> str:
        """The qualified name of the exception's own class, or "" if there was no exception."""
        return self.types[0] if self.types else ""

    @classmethod
    def of(cls, exception: BaseException, *, reason: str | None = None, stage: Stage | None = None) -> Failure:
        """Describe an exception.

        Reads redrive's signals in the exception and its explicit causes, and an attribute ``hint`` or ``retry_after``
        (a ``timedelta`` or seconds as a number; other values are ignored).

        Args:
            exception: the exception.
            reason: name of the reason; by default ``ERROR``, or that of a signal.
            stage: how far the call got; by default as far as the exception proves it (`redrive.policy.stage`).

        Raises:
            PolicyError: the handler raised `redrive.errors.RetryAfter` with an invalid duration.
            PolicyValueError: the stage does not exist; the value of a stage, as text, is converted.
        """
        kind = type(exception)
        try:
            known = names_of_class(kind)
        except Exception:  # noqa: BLE001 - a metaclass may refuse to be hashed, or raise
            known = _names_of_class(kind)
        if stage is not None and stage.__class__ is not Stage:
            stage = _stage(stage)
        try:
            is_plain = (
                known[1]
                and (type(exception) is not OSError or not is_lost(exception))
                and reason is None
                # Only then the word of a called function counts, see `forbid_repetition`.
                and stage is not Stage.IN_FLIGHT
                and exception.__cause__ is None
                and getattr(exception, "hint", None) is None
                and getattr(exception, "retry_after", None) is None
                # By far the most; the rest is spared the questions that they make.
            )
        except Exception:  # noqa: BLE001 - a property that raises must not hide the failure either
            is_plain = False
        if is_plain:
            try:
                message = str(exception)
            except Exception as error:  # noqa: BLE001 - a broken __str__ must not hide the failure that it belongs to
                message = _no_text(exception, error)
            return _new(cls, (known[0], message, "ERROR", stage or known[2], None, None, None, (), None, None, None))
        return _of_other(known[0], exception, reason, stage)

    @classmethod
    def of_result(cls, result: object, rejected_by: tuple[int, ...] | None = None) -> Failure:
        """Describe a result that counts as a failure (``on_result``).

        Its hint is an attribute ``hint`` or ``retry_after``, as of an exception, or the ``retry-after-ms`` or the
        ``Retry-After`` of its ``headers``. A date there needs the ``Date`` of the response, to which it is relative.
        """
        import reprlib

        hint = _hint(result)
        if not hint:
            with suppress(Exception):
                # A foreign mapping may raise anything, too.
                hint = _header_hint(result)
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


def _names_of_class(cls: type[BaseException]) -> tuple[tuple[str, ...], bool, Stage]:
    # By identity: a metaclass may compare and hash its classes as it likes.
    hidden = BaseException if issubclass(cls, Exception) else object
    types = tuple(qualified_name(base) for base in cls.__mro__ if base is not object and base is not hidden)
    stage, is_sure = stage_of_class(types)
    return types, is_sure and not issubclass(cls, Signal | BaseExceptionGroup), stage


# The cache is bounded, because a program that creates classes at run time must not fill the memory.
# Return `Failure.types` for a class of exceptions; True if it is neither a signal nor a group and all its exceptions
# without a cause have the same stage; and that stage.
names_of_class = cast(
    "Callable[[type[BaseException]], tuple[tuple[str, ...], bool, Stage]]", lru_cache(1024)(_names_of_class)
)


def _of_other(types: tuple[str, ...], exception: BaseException, reason: str | None, stage: Stage | None) -> Failure:
    """Describe a group, or an exception with a hint, with a cause, or with a stage that its class does not settle."""
    try:
        message = str(exception)
    except Exception as error:  # noqa: BLE001 - as above
        message = _no_text(exception, error)
    proved = stage_of(exception) if stage is None else stage
    plain = Failure(types, message, reason or "ERROR", proved, _hint(exception), once=forbidden_by(exception))
    if is_a(exception, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", exception)
        return of_leaves(plain, [Failure.of(leaf, stage=stage) for leaf in flatten(group)], stage)
    return _signalled(plain, exception, given=reason)


def _no_text(exception: BaseException, error: Exception) -> str:
    return f"<no message: {type(error).__name__} in {type(exception).__name__}.__str__>"


def _header_hint(response: object) -> timedelta | None:
    """Return the ``Retry-After`` of a response; None if it has none that can be read without a clock."""
    headers = attribute(response, "headers")
    if not isinstance(headers, Mapping):
        return None
    from redrive.policy import hints

    exact, value, date = (headers.get(name) for name in ("retry-after-ms", "Retry-After", "Date"))
    delay = hints.retry_after_ms(exact).delay if isinstance(exact, str) else None
    if delay is not None or not isinstance(value, str):
        return delay
    delay = hints.retry_after_decimal(value).delay
    if delay is not None:
        return delay
    if not isinstance(date, str) or hints.http_date(date.strip(), now=hints.EPOCH) is None:
        return None
    return hints.retry_after(value, now=hints.EPOCH, response_date=date).delay


def _hint(failed: object) -> timedelta | None:
    value = attribute(failed, "hint")
    if value is None:
        value = attribute(failed, "retry_after")
        if value is None:
            return None
    # Database drivers have a text for users under the same name. The methods of a foreign number may raise anything.
    with suppress(Exception):
        return None if isinstance(value, str) else parse_duration(value)
    return None


def _signalled(plain: Failure, exception: BaseException, *, given: str | None) -> Failure:
    """Apply the first signal in the chain of explicit causes to a failure."""
    seen: set[int] = set()
    link: BaseException | None = exception
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if is_a(link, Signal):
            return _of_signal(plain, link, given=given)
        link = cause_of(link)
    return plain


def _of_signal(plain: Failure, signal: BaseException, *, given: str | None) -> Failure:
    if isinstance(signal, GiveUp):
        return plain._replace(permanent=signal.why or "gave up", reason=given or "GAVE_UP")
    if isinstance(signal, RetryAfter):
        try:
            hint = parse_wait(signal.delay)
        except PolicyError as error:
            raise error.within("RetryAfter") from None
        return plain._replace(hint=hint, candidate=True, reason=given or "RETRY_AFTER")
    return plain._replace(candidate=False)


def of_leaves(group: Failure, leaves: Iterable[Failure], stage: Stage | None) -> Failure:
    """Describe a group by its leaves: it is final if a leaf is final, and its hint is the longest of its leaves.

    Unless its stage is given, it was in flight if a leaf was, and it was not sent if no leaf was.
    """
    leaves = tuple(leaves)
    if stage is None:
        stages = {leaf.stage for leaf in leaves} | {group.stage} & {Stage.IN_FLIGHT}
        stage = Stage.IN_FLIGHT if Stage.IN_FLIGHT in stages else Stage.ANSWERED
        group = group._replace(stage=Stage.NOT_SENT if stages == {Stage.NOT_SENT} else stage)
    final = [leaf.permanent for leaf in leaves if leaf.permanent is not None]
    hints = [leaf.hint for leaf in leaves if leaf.hint is not None]
    return group._replace(
        leaves=leaves, permanent=final[0] if final else None, hint=max(hints) if hints else group.hint
    )


_ONCE = "__redrive_once__"
# Marks of another process have a copy of this object, and times of another clock: they count as new.
_HERE = object()


def forbid_repetition(error: BaseException, name: str, at: float) -> None:
    """Store on an exception that it has left a function that is declared ``idempotent=False``, and when.

    A failure in flight is then repeated by no policy around that function: the stricter of both declarations holds.
    ``at`` is monotonic time.
    """
    set_mark(error, _ONCE, (name, at, _HERE))


def forbidden_by(exception: BaseException, since: float = -inf) -> str | None:
    """Return the name that `forbid_repetition` stored on an exception or on an origin of it; None without one.

    Args:
        exception: the exception.
        since: the start of an attempt, in monotonic time. Older marks do not count: one object may be raised by several
            calls, as that of a future is. Calls that await it at the same time cannot be told apart: the mark counts.
    """
    marks = (mark_of(link, _ONCE) for link in origins(exception))
    return next((mark[0] for mark in marks if mark and (mark[1] >= since or mark[2] is not _HERE)), None)


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
