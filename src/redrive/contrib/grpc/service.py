"""A whole service config of gRPC: which method is retried how, and the throttle of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redrive.contrib.grpc.document import (
    MOST_ATTEMPTS,
    read_duration,
    read_hedging_policy,
    read_retry_policy,
    read_retry_throttling,
)
from redrive.errors import PolicySyntaxError, PolicyValueError
from redrive.policy import Policy
from redrive.policy.budget import ThrottleBudget

__all__ = ["MethodConfig", "ServiceConfig", "read_service_config"]


@dataclass(frozen=True, slots=True)
class MethodConfig:
    """What a service config says of some methods.

    Attributes:
        names: of the methods: ``package.Service/Method``, ``package.Service/`` for all of a service, ``/`` for all.
        policy: how they are retried or hedged, within their ``timeout`` if they have one; None: they are not.
    """

    names: tuple[str, ...]
    policy: Policy | None


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service config says about retries.

    Attributes:
        methods: in the order of the document.
        throttling: the retry budget of the server; None: it has none.
    """

    methods: tuple[MethodConfig, ...]
    throttling: ThrottleBudget | None

    def policy_for(self, method: str) -> Policy | None:
        """The policy of a method.

        Args:
            method: ``/package.Service/Method``, as interceptors get it; the first stroke may be missing.

        Returns:
            The policy of the method, or else of its service, or else of all methods; None if it is not retried.
        """
        whole = method.removeprefix("/")
        named = {name: each.policy for each in self.methods for name in each.names}
        for name in (whole, whole.partition("/")[0] + "/", "/"):
            if name in named:
                return named[name]
        return None


def read_service_config(document: Mapping[str, Any] | str | bytes, *, most: int = MOST_ATTEMPTS) -> ServiceConfig:
    """Read what a service config says about retries.

    Args:
        document: the JSON, as an object or as text.
        most: attempts that this client makes at most; a client may raise it.

    Returns:
        The policies and the throttle.

    Raises:
        PolicySyntaxError: the text is no JSON.
        PolicyValueError: what gRFC A6 forbids; the message says what, where, and what would be right. A config that is
            wrong anywhere is wrong as a whole.
    """
    said = _parsed(document) if isinstance(document, str | bytes) else document
    if not isinstance(said, Mapping):
        raise PolicyValueError(f"the service config {said!r} is not an object of JSON")
    methods = said.get("methodConfig", [])
    if not isinstance(methods, list | tuple):
        raise PolicyValueError(f"methodConfig: {methods!r} is not a list")
    found = tuple(_method(each, most, f"methodConfig[{place}]") for place, each in enumerate(methods))
    names = [name for each in found for name in each.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PolicyValueError(f"methodConfig: {', '.join(twice)} is named more than once")
    throttling = said.get("retryThrottling")
    return ServiceConfig(found, None if throttling is None else read_retry_throttling(throttling))


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise PolicySyntaxError(f"the service config is no JSON: {error}") from None


def _method(said: object, most: int, at: str) -> MethodConfig:
    if not isinstance(said, Mapping):
        raise PolicyValueError(f"{at}: {said!r} is not an object of JSON")
    names = tuple(_names(said.get("name", []), f"{at}.name"))
    policy, retried, hedged = None, said.get("retryPolicy"), said.get("hedgingPolicy")
    if retried is not None and hedged is not None:
        raise PolicyValueError(f"{at}: it has a retryPolicy and a hedgingPolicy; only one of them may be there")
    if retried is not None:
        policy = read_retry_policy(retried, most=most, at=f"{at}.retryPolicy")
    elif hedged is not None:
        policy = read_hedging_policy(hedged, most=most, at=f"{at}.hedgingPolicy")
    timeout = said.get("timeout")
    if timeout is not None:
        seconds = read_duration(timeout, at=f"{at}.timeout") / 10**9
        if seconds <= 0:
            raise PolicyValueError(f"{at}.timeout: {timeout!r} leaves no time at all")
        policy = policy and policy.with_(deadline=seconds)
    return MethodConfig(names, policy)


def _names(said: object, at: str) -> Iterator[str]:
    if not isinstance(said, list | tuple):
        raise PolicyValueError(f"{at}: {said!r} is not a list of names")
    for place, name in enumerate(said):
        service, method = (
            (name.get(key) or "" for key in ("service", "method")) if isinstance(name, Mapping) else (0, 0)
        )
        if not isinstance(service, str) or not isinstance(method, str):
            raise PolicyValueError(f"{at}[{place}]: {name!r} is not of the form {{'service': ..., 'method': ...}}")
        if method and not service:
            raise PolicyValueError(f"{at}[{place}]: the method {method!r} is named without its service")
        yield f"{service}/{method}"
