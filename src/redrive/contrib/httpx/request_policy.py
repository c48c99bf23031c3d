"""The policy of one request: that of the transport, adapted to the request.

A user writes one policy for all requests. The transport sets ``idempotent`` for each request if the policy leaves it
open, and removes the hedge of a request that may not be repeated. Failures are described by a classifier, and policies
with a classifier can be combined with limits only (`redrive.policy.algebra`).
"""

from __future__ import annotations

from functools import lru_cache, partial

import httpx

from redrive.contrib.httpx.call import EXTENSION, RequestCall
from redrive.contrib.httpx.classify import classifier
from redrive.errors import PolicyValueError
from redrive.policy import Policy
from redrive.policy.algebra import Combined
from redrive.policy.policy import only_limits
from redrive.retrying.context import SCOPE
from redrive.retrying.plan import Plan

__all__ = ["checked", "plan_for"]

# Programs have few policies; those made on the fly must not fill the memory.
_REMEMBERED = 64


def checked(policy: Policy | str | None, name: str, *, hedges: bool) -> Policy:
    """Return the policy of a transport, checked."""
    if policy is not None and not isinstance(policy, Policy | str):
        raise TypeError(f"{name}() takes a policy or a directive, not {policy!r}")
    meant = Policy.parse(policy) if isinstance(policy, str) else policy or Policy()
    if meant.hedge is not None and not hedges:
        raise PolicyValueError(f"{name}: hedge={meant.hedge!r}: only AsyncRetryTransport makes copies of a request")
    # Raises now, and not at the first request.
    plan = Plan(_fit(meant, repeatable=True, copyable=True), name)
    if not hedges:
        plan.refuse_await("a plain function")
    return meant


def plan_for(policy: Policy, request: httpx.Request, call: RequestCall) -> Plan:
    """Return the plan of a request."""
    # A request may have a policy of its own, and overrides may be in force for either policy.
    own = base = request.extensions.get(EXTENSION, policy)
    if not isinstance(own, Policy):
        raise TypeError(f"extensions={{'{EXTENSION}': {own!r}}}: give a redrive.Policy")
    scope = SCOPE.get()
    for given, changes in () if scope is None else scope.overrides:
        if given == base:
            own = own.with_(**changes)
    return _plan(_ById(own), call.is_repeatable, call.body is None)


class _ById:
    """A policy as a key by identity: to hash all its fields takes longer than the rest of a call."""

    __slots__ = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.policy is other.policy

    def __hash__(self) -> int:
        return id(self.policy)


@lru_cache(_REMEMBERED)
def _plan(key: _ById, repeatable: bool, copyable: bool) -> Plan:  # noqa: FBT001 - positional arguments make a faster key
    return Plan(_fit(key.policy, repeatable=repeatable, copyable=copyable), "the transport")


def _fit(policy: Policy, *, repeatable: bool, copyable: bool) -> Policy:
    if isinstance(policy, Combined):
        left, right = policy.left, policy.right
        if not only_limits(left) and not only_limits(right):
            raise PolicyValueError(
                f"{policy!r}: two policies cannot both read how far a request got; "
                "give the transport one, or retry the function that calls the client"
            )
        fit = partial(_fit, repeatable=repeatable, copyable=copyable)
        return type(policy)(*[part if only_limits(part) else fit(part) for part in (left, right)])
    idempotent = repeatable if policy.idempotent is None else policy.idempotent
    hedge = policy.hedge if idempotent and copyable else None
    return policy.with_(on=classifier(policy.on), idempotent=idempotent, hedge=hedge)
