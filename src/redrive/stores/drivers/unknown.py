"""The error for a write whose commit was sent and whose answer was lost. PURE."""

from __future__ import annotations

from redrive.errors import StoreOutcomeUnknown

__all__ = ["unknown"]

_ENQUEUE = "enqueue"

_ADVICE = "look at what is there before you repeat it"
_WITH_KEY = f"{_ADVICE}; an enqueue with an idempotency_key=, or with a key=, can be repeated without a second job"


def unknown(store: object, operation: str | None, text: str) -> StoreOutcomeUnknown:
    """Return the error.

    Args:
        store: name of the database.
        operation: name of the operation that was to be committed; None where several share the transaction.
        text: message of the database library.
    """
    advice = _WITH_KEY if operation in {None, _ENQUEUE} else _ADVICE
    return StoreOutcomeUnknown(
        f"{store}: the answer to the commit of {operation or 'this write'} was lost, so it is unknown whether it took "
        f"effect: {advice} ({text})"
    )
