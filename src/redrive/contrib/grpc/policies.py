"""The policies of a channel's methods."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from typing import Any

from redrive.contrib.grpc.classify import describe
from redrive.contrib.grpc.service_config import ServiceConfig
from redrive.errors import PolicyValueError
from redrive.policy import Failure, Policy, Stage
from redrive.policy.classify import reading
from redrive.retrying import budget
from redrive.retrying.plan import Plan
from redrive.retrying.state import CallState, start

_DEFAULT = "GRPC_UNAVAILABLE"
_IPV4 = re.compile(r"(?:ipv4:)?(\d+\.\d+\.\d+\.\d+:\d+)", re.ASCII)
_CACHED_PLANS = 256  # one for each method and timeout


class MethodPolicies:
    """The policies of a channel's methods, prepared for calls; see `redrive.contrib.grpc.channel`."""

    def __init__(self, target: str, policy: Policy | ServiceConfig) -> None:
        self._config = policy if isinstance(policy, ServiceConfig) else None
        self._policy = None if isinstance(policy, ServiceConfig) else _with_classifier(policy)
        self._key: str | None = None
        # In the form of error details; empty if the target is a host name, which only grpcio resolves.
        found = _IPV4.fullmatch(target.rpartition("/")[2])
        self.address = f"ipv4:{found[1]}" if found else ""
        if self._config is not None and self._config.throttling is not None:
            self._key = f"grpc {target}"
            budget(self._key, self._config.throttling)
        self._plan = functools.lru_cache(maxsize=_CACHED_PLANS)(self._make_plan)

    def refuse_hedges(self) -> None:
        """Raise PolicyValueError if a policy hedges: sync calls cannot be cancelled."""
        policies = [self._policy] if self._config is None else [each.policy for each in self._config.methods]
        if any(policy is not None and policy.hedge is not None for policy in policies):
            raise PolicyValueError("a hedging policy needs calls that can be cancelled: use aio_channel()")

    def start(self, details: Any) -> CallState | None:  # noqa: ANN401 - of a library without types
        """Begin a call; return None if its method is not retried."""
        method = details.method
        name = method.decode() if isinstance(method, bytes) else str(method)
        plan = self._plan(name, details.timeout)
        return None if plan is None else start(plan, f"grpc {name}")

    def _make_plan(self, method: str, timeout: float | None) -> Plan | None:
        policy = self._policy
        if self._config is not None:
            found = self._config.policy_for(method)
            policy = None if found is None else _with_classifier(found)
            if policy is not None and self._key is not None:
                policy = policy.with_(budget=self._key)
        if policy is None:
            return None
        if timeout is not None:
            # gRFC A6: the timeout of a call covers all its attempts.
            whole = timedelta(seconds=max(timeout, 0.001))
            policy = policy.with_(deadline=whole if policy.deadline is None else min(policy.deadline, whole))
        return Plan(policy, f"grpc {method}")


def _with_classifier(policy: Policy) -> Policy:
    if policy.parts is not None:
        raise PolicyValueError("a channel takes one policy, and this is a combination: pass one of its parts")
    return policy.with_(on=reading(_describe, policy.on or _DEFAULT))


def _describe(error: BaseException) -> Failure | None:
    # redrive's own timeout of an attempt raises TimeoutError.
    if isinstance(error, TimeoutError):
        return Failure.of(error, reason="TIMEOUT", stage=Stage.IN_FLIGHT)
    return describe(error)
