"""The strategies that cases of ``couchbase.json`` describe in words.

Words may be combined: an action, the reason that it is for, and the action for all other reasons.
``awaits 300 ms then best_effort``, ``raises ValueError on KV_LOCKED``, ``KV_LOCKED -> 25 ms else best_effort``,
``no_retry if client_context.isRobot``.
"""

from __future__ import annotations

import asyncio
import builtins
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redrive.clock import SystemClock
from redrive.orchestrator import (
    BestEffort,
    FailFast,
    FailFastOnTerminalError,
    RetryAction,
    RetryReason,
    controlled_backoff,
    exponential_backoff,
)
from redrive.policy import Backoff
from tests.conformance.adapters.vocabulary import UnknownWord

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.orchestrator import Request

__all__ = ["RecordingStrategy", "named", "reason_of", "reason_on", "strategy_of"]

_FOREVER = 10**6


@dataclass
class RecordingStrategy:
    """A strategy that records its calls and passes them to another one.

    Attributes:
        inner: the other strategy.
        effects: receives ``strategy`` at each call.
        reasons: the reasons of the calls.
        contexts: the caller's context at each call.
    """

    inner: Any
    effects: list[str] = field(default_factory=list)
    reasons: list[RetryReason] = field(default_factory=list)
    contexts: list[dict[str, Any]] = field(default_factory=list)

    async def retry_after(self, request: Request, reason: RetryReason, /) -> RetryAction | None:
        """Record the call, and return the other strategy's answer."""
        self.effects.append("strategy")
        self.reasons.append(reason)
        self.contexts.append(dict(request.context))
        return await _asked(self.inner, request, reason)


async def _asked(strategy: Any, request: Request, reason: RetryReason) -> RetryAction | None:
    answer = getattr(strategy, "retry_after", strategy)(request, reason)
    result: RetryAction | None = await answer if hasattr(answer, "__await__") else answer
    return result


def named(name: str) -> type[Exception]:
    """Return an exception of this name: Python's if there is one; otherwise a new class in place of a user's own."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        return known
    return _NAMED.setdefault(name, type(name, (Exception,), {}))


_NAMED: dict[str, type[Exception]] = {}


def reason_of(entry: object) -> RetryReason:
    """Return a reason by its name, or one that has these flags.

    Raises:
        UnknownWord: it is neither.
    """
    if isinstance(entry, dict) and set(entry) == {"allows_non_idempotent_retry", "always_retry"}:
        return RetryReason("TEST_CASE", entry["allows_non_idempotent_retry"], entry["always_retry"])
    if isinstance(entry, str):
        reason = RetryReason.parse(entry)
        if reason.name != "UNKNOWN" or entry.upper() == "UNKNOWN":
            return reason
    raise UnknownWord(f"{entry!r} (known: a registered reason, or an object with its two flags)")


def reason_on(entry: object) -> RetryReason | None:
    """Return the reason that the words of a strategy name; None if they name none."""
    if not isinstance(entry, str):
        return None
    names = [name for name in re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", entry) if RetryReason.parse(name).name == name]
    return RetryReason.of(names[0]) if names else None


# ---------------------------------------------------------------------------------------------------------------- words

_MS = r"(\d+(?:\.\d+)?) ?ms"
_FIXED: dict[str, Callable[[], Any]] = {
    "best_effort": BestEffort,
    "best effort": BestEffort,
    "default": BestEffort,
    "super": BestEffort,
    "fail_fast": FailFast,
    "fail fast": FailFast,
    "fail_fast_on_terminal_error": FailFastOnTerminalError,
    "no_retry": FailFast,
    "no retry": FailFast,
    "none": FailFast,
    "null": FailFast,
    "returns none": FailFast,
    "reads client_context": FailFast,
    "retry everything": lambda: _always(1),
    "retries everything": lambda: _always(1),
    "retry at once": lambda: _always(0),
    "zero delay": lambda: _always(0),
}
_CALCULATORS: dict[str, Callable[[], Any]] = {
    "controlled": lambda: controlled_backoff,
    "exponential": exponential_backoff,
}


def strategy_of(entry: object) -> Any:
    """Return the strategy that a case describes.

    Raises:
        UnknownWord: it describes another one.
    """
    if not isinstance(entry, str):
        raise UnknownWord(f"strategy {entry!r} (known: words, such as {', '.join(sorted(_FIXED))})")
    words = entry.strip()
    if words in _FIXED:
        return _FIXED[words]()
    for pattern, make in _FORMS:
        if found := re.fullmatch(pattern, words):
            return make(found)
    raise UnknownWord(
        f"strategy {entry!r} (known: {', '.join(sorted(_FIXED))}; raises X; awaits N ms; X on REASON; ...)"
    )


def _always(milliseconds: float) -> Any:
    return lambda *_: RetryAction(milliseconds / 1000)


def _backoff(words: str) -> Any:
    if words in _CALCULATORS:
        return _CALCULATORS[words]()
    if found := re.fullmatch(rf"(?:fixed|constant) {_MS}", words):
        return Backoff.constant(float(found[1]) / 1000)
    if found := re.fullmatch(r"exponential (\d+)\.\.(\d+)(?: ?x ?(\d+(?:\.\d+)?))?(?: ?ms)?", words):
        return exponential_backoff(int(found[1]) / 1000, int(found[2]) / 1000, float(found[3] or 2))
    if found := re.fullmatch(r"linear (\d+)(?: ?ms)?", words):
        return lambda attempts: (attempts + 1) * int(found[1]) / 1000
    raise UnknownWord(
        f"calculator {words!r} (known: controlled, exponential, exponential 1..500, fixed N ms, linear N ms)"
    )


def _for_one(name: str, then: Any, other: Any) -> Any:
    """Return one strategy for a reason, and another for all other reasons."""
    reason = reason_of(name)

    async def retry_after(request: Request, given: RetryReason) -> RetryAction | None:
        return await _asked(then if given == reason else other, request, given)

    return retry_after


def _raising(kind: type[BaseException]) -> Any:
    def retry_after(*_: Any) -> RetryAction | None:
        raise kind("of the strategy")

    return retry_after


def _slow(seconds: float, then: Any) -> Any:
    async def retry_after(request: Request, reason: RetryReason) -> RetryAction | None:
        await SystemClock().asleep(seconds)
        return await _asked(then, request, reason)

    return retry_after


def _translating(kind: type[Exception]) -> Any:
    return lambda *_: RetryAction.no_retry(lambda error: kind(str(error)))


def _looking(key: str, value: str | None, then: Any, other: Any) -> Any:
    """Return one strategy if the caller's context has a key, and another if not."""

    async def retry_after(request: Request, reason: RetryReason) -> RetryAction | None:
        found = request.context.get(key)
        holds = bool(found) if value is None else str(found).lower() == value.lower()
        return await _asked(then if holds else other, request, reason)

    return retry_after


def _counting(limit: int, then: Any) -> Any:
    async def retry_after(request: Request, reason: RetryReason) -> RetryAction | None:
        return await _asked(then, request, reason) if request.retry_attempts < limit else None

    return retry_after


def _action(words: str | None) -> Any:
    """Return the action of a strategy for its reason: an amount of time, or words."""
    if words is None:
        return BestEffort()
    if found := re.fullmatch(rf"(?:retry )?(?:after |in |returns )?{_MS}", words):
        return _always(float(found[1]))
    return strategy_of(words)


_ELSE = r"(?:[;,]? ?(?:else|otherwise) (.+))?"
_FORMS: tuple[tuple[str, Callable[[re.Match[str]], Any]], ...] = (
    (r"best[_ ]effort\((.+)\)", lambda found: BestEffort(_backoff(found[1]))),
    (
        rf"(.+?) if client_context\.(\w+)(?: ?==? ?(\w+))?{_ELSE}",
        lambda found: _looking(found[2], found[3], _action(found[1]), _action(found[4])),
    ),
    (
        r"(\w+) -> no_retry\(translate=(\w+)\)",
        lambda found: _for_one(found[1], _translating(named(found[2])), BestEffort()),
    ),
    (r"no_retry\(translate=(\w+)\)|translates to (\w+)", lambda found: _translating(named(found[1] or found[2]))),
    (rf"(\w+) -> (.+?){_ELSE}", lambda found: _for_one(found[1], _action(found[2]), _action(found[3]))),
    (
        rf"(.+?) (?:on|for) ([A-Z][A-Z0-9_]+){_ELSE}",
        lambda found: _for_one(found[2], _action(found[1]), _action(found[3])),
    ),
    (r"(?:is )?cancel(?:l?ed|s)(?: while (?:awaiting|waiting))?", lambda _: _raising(asyncio.CancelledError)),
    (r"(?:raises|throws) CancelledError", lambda _: _raising(asyncio.CancelledError)),
    (r"(?:raises|throws) (\w+)", lambda found: _raising(named(found[1]))),
    (
        rf"(?:awaits|waits|sleeps|takes|async) {_MS}(?:,? (?:then|and then|and) (.+))?",
        lambda found: _slow(float(found[1]) / 1000, _action(found[2])),
    ),
    (
        r"never (?:answers|returns|completes)|hangs|waits for ever|awaits for ever",
        lambda _: _slow(_FOREVER, BestEffort()),
    ),
    (
        r"(.+?),? (?:at most|up to|max) (\d+) (?:times|retries)",
        lambda found: _counting(int(found[2]), _action(found[1])),
    ),
    (rf"(?:returns |retry after |after )?{_MS}", lambda found: _always(float(found[1]))),
    (r"(controlled|exponential.*|fixed .*|constant .*|linear .*)", lambda found: BestEffort(_backoff(found[1]))),
)
"""Forms of words, tried in order."""
