"""A policy as it is frozen into a job. PURE.

A job keeps the policy that it was enqueued under (`spec/engine.md`): a deploy changes what new jobs do, not what is
already waiting. The text of a policy is stored once, under a digest of itself, and jobs name the digest: a job row
stays narrow, and equal policies of a million jobs are one row.
"""

from __future__ import annotations

import functools
import hashlib

import msgspec

from redrive.errors.foreign import summary, trace
from redrive.policy import Policy
from redrive.policy.value import freeze as freeze_field

__all__ = ["FrozenPolicy", "UnreadablePolicy", "freeze", "is_readable", "read", "thaw"]


class UnreadablePolicy(Policy):
    """Stands for a policy whose text this process cannot read. Nothing is decided by it.

    Args:
        why: the class and the text of the exception that reading it has raised.
        trace: its traceback.
    """

    __slots__ = ("trace", "why")
    why: str
    trace: str

    def __init__(self, why: str, trace: str = "") -> None:
        super().__init__(attempts=1, idempotent=False)
        freeze_field(self, "why", why)
        freeze_field(self, "trace", trace)


def is_readable(policy: Policy) -> bool:
    """Return whether a policy is one, and does not only stand for one."""
    return type(policy) is not UnreadablePolicy


class FrozenPolicy(msgspec.Struct, frozen=True, gc=False):
    """A policy, its text, and the name of that text.

    Attributes:
        policy: the value.
        document: its JSON, always the same for equal policies.
        digest: of the document, 128 bits in hex.
    """

    policy: Policy
    document: str
    digest: str


@functools.lru_cache(maxsize=1024)
def freeze(policy: Policy) -> FrozenPolicy:
    """Write a policy as text.

    Args:
        policy: the value.

    Returns:
        The policy with its text and digest.

    Raises:
        PolicyValueError: a part of it, such as a function, cannot be written down.
    """
    document = msgspec.json.encode(policy.to_dict(), order="deterministic")
    return FrozenPolicy(policy, document.decode(), hashlib.sha256(document).hexdigest()[:32])


@functools.lru_cache(maxsize=1024)
def thaw(document: str) -> Policy:
    """Read a policy from the text that `freeze` wrote.

    Args:
        document: the JSON.

    Returns:
        The policy.

    Raises:
        PolicyValueError: the text is not that of a policy.
    """
    return Policy.from_dict(msgspec.json.decode(document))


def read(document: str) -> Policy:
    """Read a policy as a row of a store names it; one that cannot be read must not stop the other rows.

    Reading calls functions of the application, such as a registered backoff, which may raise anything.

    Args:
        document: the JSON.

    Returns:
        The policy, or an `UnreadablePolicy`.
    """
    try:
        return thaw(document)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - see above
        return UnreadablePolicy(summary(error), trace(error))
