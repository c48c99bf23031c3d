"""The policy of a request of an HTTP client: checked, fitted to the request, and kept for the next one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

from redrive.contrib.http.classify import Library, Request, Terms, classifier
from redrive.errors import PolicyValueError
from redrive.policy import Failure, Policy, hints
from redrive.policy.algebra import Combined
from redrive.policy.hints import HintReader
from redrive.policy.policy import only_limits
from redrive.retrying import http
from redrive.retrying.context import SCOPE
from redrive.retrying.own import OwnBudget
from redrive.retrying.plan import Plan

KeyOption: TypeAlias = bool | Callable[[Request], str | None]
"""Whether requests get an idempotency key, or a function that returns its unique part."""

_STATUS = re.compile("HTTP_[0-9]{3}")
_GOOD = range(100, 400)
# Asks for another connection (RFC 9110, 15.5.20), so this one is not read to be used again.
_MISDIRECTED = 421
# Programs have few policies; those made on the fly must not fill the memory.
_REMEMBERED = 64


def key_for(request: Request, option: KeyOption, library: Library) -> str | None:
    """Return the idempotency key that a request needs and does not have; None for none."""
    if not option or request.method == "CONNECT":
        return None
    if http.is_idempotent(request.method, library.pairs(request.headers)):
        return None
    uid = None if option is True else option(request)
    return http.idempotency_key(uid) if option is True or uid is not None else None


class Choice(NamedTuple):
    """What the policy of a request says about answers."""

    #: The statuses that are named, in the policy or as an option of the client.
    statuses: frozenset[int] = frozenset()
    #: True if a function decides about answers.
    asks: bool = False
    #: Reads the headers of an answer.
    hints: HintReader = hints.http

    def accepts(self, status: int) -> bool:
        """Return True if an answer is no failure by its status."""
        return status in _GOOD and status not in self.statuses

    def drains(self, failure: Failure | None, status: int) -> bool:
        """Return True if a bad answer should be read: it may be retried, on the same connection."""
        is_final = failure is None or failure.lasting is not None
        may_retry = not is_final or self.asks or status in self.statuses
        return may_retry and status != _MISDIRECTED


NOTHING = Choice()


class Prepared(NamedTuple):
    """A policy prepared for requests of one kind."""

    plan: Plan
    choice: Choice


def checked(policy: Policy | str | None, name: str, *, terms: Terms, hedges: bool, awaits: bool) -> Policy:
    """Return the policy of a client, checked.

    Args:
        policy: a policy, a directive, or None.
        name: of the class or function that takes it.
        terms: those of the client.
        hedges: False for a client that cannot send copies of a request.
        awaits: False for a client that cannot await the functions of a policy.
    """
    if policy is not None and not isinstance(policy, Policy | str):
        raise TypeError(f"{name}() takes a policy or a directive, not {policy!r}")
    meant = Policy.parse(policy) if isinstance(policy, str) else policy or Policy()
    if meant.hedge is not None and not hedges:
        raise PolicyValueError(f"{name}: hedge={meant.hedge!r}: only AsyncRetryTransport makes copies of a request")
    # Raises now, and not at the first request.
    plan = Plan(_fit(meant, terms, repeatable=True, copyable=True), name)
    if not awaits:
        plan.refuse_await("a plain function")
    return meant


def prepared(policy: Policy, terms: Terms, own: OwnBudget, *, repeatable: bool, copyable: bool) -> Prepared:
    """Return the plan of a request, with the budget of its client, and what the policy says about answers.

    Args:
        policy: the policy; overrides in force change it.
        terms: those of the client.
        own: the budget of the client.
        repeatable: True if the request may be repeated although it may have taken effect.
        copyable: True if several copies of the request can be sent side by side.
    """
    meant = policy
    scope = SCOPE.get()
    for given, changes in () if scope is None else scope.overrides:
        if given == policy:
            meant = meant.with_(**changes)
    return _prepared(_ById(meant), terms, own, repeatable, copyable)


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
def _prepared(
    key: _ById,
    terms: Terms,
    own: OwnBudget,
    repeatable: bool,  # noqa: FBT001 - positional arguments make a faster key
    copyable: bool,  # noqa: FBT001
) -> Prepared:
    policy = key.policy
    plan = Plan(_fit(policy, terms, repeatable=repeatable, copyable=copyable), "the transport", own)
    statuses = frozenset(_statuses(policy)) | (terms.statuses or frozenset())
    asks = any(callable(part.on) for part in _parts(policy)) or any(policy.predicates)
    reader = hints.ai if any(part.hints == "ai" for part in _parts(policy)) else hints.http
    return Prepared(plan, Choice(statuses, asks, reader))


def _parts(policy: Policy) -> Iterator[Policy]:
    """Yield the policies of a combination; of a plain policy itself."""
    if policy.parts is None:
        yield policy
    else:
        _, left, right = policy.parts
        yield from _parts(left)
        yield from _parts(right)


def _statuses(policy: Policy) -> Iterator[int]:
    """Yield the statuses that a policy names, in ``on`` or in a rule."""
    for part in _parts(policy):
        names = part.on if isinstance(part.on, tuple) else ()
        for each in (names, *(rule.on for rule in part.rules)):
            yield from (int(name.removeprefix("HTTP_")) for name in each if _STATUS.fullmatch(name))


def _fit(policy: Policy, terms: Terms, *, repeatable: bool, copyable: bool) -> Policy:
    if isinstance(policy, Combined):
        left, right = policy.left, policy.right
        if not only_limits(left) and not only_limits(right):
            raise PolicyValueError(
                f"{policy!r}: two policies cannot both read how far a request got; "
                "give the transport one, or retry the function that calls the client"
            )
        fit = partial(_fit, terms=terms, repeatable=repeatable, copyable=copyable)
        return type(policy)(*[part if only_limits(part) else fit(part) for part in (left, right)])
    # Left open, and not False: only the user's own word holds for calls around this one.
    idempotent = (repeatable or None) if policy.idempotent is None else policy.idempotent
    hedge = policy.hedge if idempotent and copyable else None
    named = [name for rule in policy.rules for name in rule.on]
    reading = terms._replace(hints=hints.ai) if policy.hints == "ai" else terms
    on = classifier(policy.on, reading, policy.on_result, named)
    return policy.with_(on=on, idempotent=idempotent, hedge=hedge)
