"""The policy of one request: that of the transport, as it applies to this one.

A user writes one policy for all requests. Whether one may be repeated is a fact about the request, so it is filled in
where the policy leaves it open; and only a request that may be repeated may be hedged.

What a failure is, is read from the error by a classifier, and policies that have one are combined with limits only
(`redrive.policy.algebra`).
"""

from __future__ import annotations

from functools import lru_cache, partial

import httpx

from redrive.contrib.httpx.call import EXTENSION, Call
from redrive.contrib.httpx.classify import classifier
from redrive.errors import PolicyValueError
from redrive.policy import Policy
from redrive.policy.algebra import Combined
from redrive.policy.policy import only_limits
from redrive.retrying.context import SCOPE
from redrive.retrying.plan import Plan

__all__ = ["checked", "fitted"]

_REMEMBERED = 64  # programs have few policies; those made on the fly must not fill the memory


def checked(policy: Policy | str | None, name: str, *, hedges: bool) -> Policy:
    """The policy that was meant.

    Args:
        policy: a policy, or a directive; None for the usual one.
        name: of the transport, for messages.
        hedges: whether the transport can make copies of a request: it is async then, and awaits predicates, too.

    Raises:
        PolicyValueError: it asks for something that calls in process, or this transport, do not have.
        PolicySyntaxError: the directive cannot be read.
        TypeError: it is neither.
    """
    if policy is not None and not isinstance(policy, Policy | str):
        raise TypeError(f"{name}() takes a policy or a directive, not {policy!r}")
    meant = Policy.parse(policy) if isinstance(policy, str) else policy or Policy()
    if meant.hedge is not None and not hedges:
        raise PolicyValueError(f"{name}: hedge={meant.hedge!r}: only AsyncRetryTransport makes copies of a request")
    plan = Plan(_fit(meant, repeatable=True, copyable=True), name)  # raises now, and not at the first request
    if not hedges:
        plan.refuse_await("a plain function")
    return meant


def fitted(policy: Policy, request: httpx.Request, call: Call) -> Policy:
    """The policy for a request.

    Args:
        policy: of the transport.
        request: it may bring its own, as the extension ``redrive``, and there may be an override in force.
        call: what is known of the request.

    Raises:
        TypeError: the extension is no policy.
    """
    own = base = request.extensions.get(EXTENSION, policy)
    if not isinstance(own, Policy):
        raise TypeError(f"extensions={{'{EXTENSION}': {own!r}}}: give a redrive.Policy")
    scope = SCOPE.get()
    for given, changes in () if scope is None else scope.overrides:
        if given == base:
            own = own.with_(**changes)
    return _fit(own, repeatable=call.is_repeatable, copyable=call.body is None)


@lru_cache(_REMEMBERED)
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
