"""A call of gRPC's library under a policy: which policy, how much time, and what its attempts say of themselves."""

# ruff: noqa: ANN401 - calls, requests and messages belong to a library without types, and to its user

from __future__ import annotations

import collections
import functools
import re
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio

from redrive.contrib.grpc.proof import describe
from redrive.contrib.grpc.service import ServiceConfig
from redrive.errors import PolicyValueError
from redrive.policy import Failure, Policy, Stage
from redrive.policy.classify import reading
from redrive.retrying import budget
from redrive.retrying.context import deadline
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

__all__ = ["Calls", "asaid", "is_replayable", "said"]

_DEFAULT = "GRPC_UNAVAILABLE"
_PREVIOUS = "grpc-previous-rpc-attempts"
_IPV4 = re.compile(r"(?:ipv4:)?(\d+\.\d+\.\d+\.\d+:\d+)", re.ASCII)
_REMEMBERED = 256  # plans, one for each method and timeout


class Calls:
    """Which policy a call has.

    Args:
        target: of the channel.
        policy: see `redrive.contrib.grpc.channel`.

    Attributes:
        address: the one that the channel is made for, as errors name it; "" if that is a name.
    """

    def __init__(self, target: str, policy: Policy | ServiceConfig) -> None:
        self._config = policy if isinstance(policy, ServiceConfig) else None
        self._policy = None if isinstance(policy, ServiceConfig) else _reading(policy)
        self._key: str | None = None
        self.address = _literal(target)
        if self._config is not None and self._config.throttling is not None:
            self._key = f"grpc {target}"
            budget(self._key, self._config.throttling)
        self._plan = functools.lru_cache(maxsize=_REMEMBERED)(self._make)

    def refuse_hedges(self) -> None:
        """Fail if there is something that sync code cannot do.

        Raises:
            PolicyValueError: there is.
        """
        policies = [self._policy] if self._config is None else [each.policy for each in self._config.methods]
        if any(policy is not None and policy.hedge is not None for policy in policies):
            raise PolicyValueError("a hedging policy needs calls that can be cancelled: take aio_channel()")

    def start(self, details: Any) -> CallState | None:
        """Begin a call; None if it is not retried."""
        method = details.method
        name = method.decode() if isinstance(method, bytes) else str(method)
        plan = self._plan(name, details.timeout)
        return None if plan is None else start(plan, f"grpc {name}")

    def _make(self, method: str, timeout: float | None) -> Plan | None:
        policy = self._policy
        if self._config is not None:
            found = self._config.policy_for(method)
            policy = None if found is None else _reading(found)
            if policy is not None and self._key is not None:
                policy = policy.with_(budget=self._key)
        if policy is None:
            return None
        if timeout is not None:
            own = policy.deadline
            whole = timedelta(seconds=max(timeout, 0.001))
            policy = policy.with_(deadline=whole if own is None else min(own, whole))
        return Plan(policy, f"grpc {method}")


def _literal(target: str) -> str:
    """The address in a target, as errors name it; "" if it is a name or of another kind."""
    found = _IPV4.fullmatch(target.rpartition("/")[2])
    return f"ipv4:{found[1]}" if found else ""


def _reading(policy: Policy) -> Policy:
    if policy.parts is not None:
        raise PolicyValueError("a channel takes one policy, and this is a combination: give it a part of that")
    return policy.with_(on=reading(_describe, policy.on or _DEFAULT))


def _describe(error: BaseException) -> Failure | None:
    if isinstance(error, TimeoutError):  # the loop has cut it off
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return describe(error)


def _left(run: CallState | None, *, stream: bool) -> float | None:
    """Seconds that an attempt may take; None without a bound."""
    if not stream:
        found = deadline()
        return None if found is None else found.remaining
    if run is None or not run.plan.has_deadline or run.plan.limit is None:
        return None
    return max(0.0, run.started + run.plan.limit - run.clock.monotonic())


def _shorter(timeout: float | None, left: float | None) -> float | None:
    return min((each for each in (timeout, left) if each is not None), default=None)


class _Details(
    collections.namedtuple(  # noqa: PYI024 - the library's base class has a metaclass of its own
        "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    ),
    grpc.ClientCallDetails,  # type: ignore[misc]  # the library has no types
):
    """What the library wants to know of a call."""

    __slots__ = ()


def said(run: CallState | None, details: Any, *, stream: bool = False) -> Any:
    """The details of an attempt: its own timeout, and how many there were before it."""
    metadata = tuple(details.metadata or ())
    if run is not None and run.number > 1:
        metadata = (*metadata, (_PREVIOUS, str(run.number - 1)))
    return _Details(
        details.method,
        _shorter(details.timeout, _left(run, stream=stream)),
        metadata,
        details.credentials,
        details.wait_for_ready,
        getattr(details, "compression", None),
    )


def asaid(run: CallState | None, details: Any, *, stream: bool = False) -> grpc.aio.ClientCallDetails:
    """The same for asyncio."""
    same = said(run, details, stream=stream)
    metadata = grpc.aio.Metadata(*same.metadata)
    return grpc.aio.ClientCallDetails(same.method, same.timeout, metadata, same.credentials, same.wait_for_ready)


def is_replayable(requests: object) -> bool:
    """Whether somebody can go through the requests once more."""
    if hasattr(requests, "__aiter__"):
        return not hasattr(requests, "__anext__")
    return hasattr(requests, "__iter__") and not hasattr(requests, "__next__")
