"""The policy stored with a job. PURE.

A job keeps the policy with which it was enqueued: a deployment changes new jobs only. The JSON is stored once for equal
policies, under its digest.
"""

from __future__ import annotations

import base64
import functools
import hashlib

import msgspec

from redrive.errors.foreign import summary, trace
from redrive.policy import Policy
from redrive.policy.value import freeze as freeze_field


class UnreadablePolicy(Policy):
    """A placeholder for a policy that this process cannot decode. No decision uses it."""

    __slots__ = ("trace", "why")
    why: str
    trace: str

    def __init__(self, why: str, trace: str = "") -> None:
        super().__init__(attempts=1, idempotent=False)
        freeze_field(self, "why", why)
        freeze_field(self, "trace", trace)


def is_readable(policy: Policy) -> bool:
    """Return True unless the policy is an `UnreadablePolicy`."""
    return type(policy) is not UnreadablePolicy


class FrozenPolicy(msgspec.Struct, frozen=True, gc=False):
    """A policy with its JSON, which is the same for equal policies, and the digest of that: 96 bits in base64."""

    policy: Policy
    document: str
    digest: str

    # A child process sends the jobs of its handler to the worker, and functions may have no name to be sent by.
    def __reduce__(self) -> tuple[object, ...]:
        """Pickle a policy without its functions, as it is stored."""
        return _thawed, (self.document, self.digest)


def _thawed(document: str, digest: str) -> FrozenPolicy:
    return FrozenPolicy(thaw(document), document, digest)


@functools.lru_cache(maxsize=1024)
def freeze(policy: Policy) -> FrozenPolicy:
    """Encode a policy without its functions. Raise `PolicyValueError` if a part, such as a budget, has no key."""
    stored = policy.without_functions()
    # A job has no budget of its own, so that `budget=None` has no effect there.
    if stored.parts is None and stored.budget_given and stored.budget is None:
        stored = stored.with_(budget=...)
    document = msgspec.json.encode(stored.to_dict(), order="deterministic")
    # Each job has it, and so each record of a job in the log of the database.
    digest = base64.urlsafe_b64encode(hashlib.sha256(document).digest()[:12])
    return FrozenPolicy(policy, document.decode(), digest.decode())


@functools.lru_cache(maxsize=1024)
def thaw(document: str) -> Policy:
    """Decode a policy that `freeze` encoded; raise `PolicyValueError` if it is not one."""
    return Policy.from_dict(msgspec.json.decode(document))


def read(document: str) -> Policy:
    """Decode a policy of a row; return an `UnreadablePolicy` if that fails, so that other rows are still read."""
    try:
        return thaw(document)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - see above
        return UnreadablePolicy(summary(error), trace(error))
