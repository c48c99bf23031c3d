"""The error for a write with a lost answer to its commit. PURE."""

from __future__ import annotations

from redrive.errors import StoreOutcomeUnknown

_ENQUEUE = "enqueue"

_ADVICE = "check the state in the database before you repeat it"
_WITH_KEY = f"{_ADVICE}; an enqueue with an idempotency_key=, or with a key=, can be repeated without a second job"


def unknown(store: object, operation: str | None, text: str) -> StoreOutcomeUnknown:
    """Return the error for an operation; None means that several operations share the transaction."""
    advice = _WITH_KEY if operation in {None, _ENQUEUE} else _ADVICE
    return StoreOutcomeUnknown(
        f"{store}: the answer to the commit of {operation or 'this write'} was lost, so it is unknown whether it took "
        f"effect: {advice} ({text})"
    )
