"""One request through a transport, in either colour: its attempts and the responses that they got.

Each attempt sends a copy of the request, so that the copies of a hedged call do not disturb one another, with two
extensions of httpx:

* ``timeout``: the timeouts of the request, cut to the rest of the deadline around it; updated at each step, because the
  time that a connect took is no longer there for the read.
* ``trace``: a callback that records the steps of httpcore, and calls the one of the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from redrive.contrib import extra
from redrive.contrib.httpx.bodies import SHORT, Body, is_short
from redrive.contrib.httpx.classify import Allowed, Evidence, Trail, classifier, mark
from redrive.errors import PolicyValueError
from redrive.errors.foreign import is_a
from redrive.policy import Failure, Policy, Stage
from redrive.policy.algebra import Combined
from redrive.policy.outcome import Ok, Outcome, Record
from redrive.policy.policy import only_limits
from redrive.retrying import http
from redrive.retrying.context import SCOPE, deadline
from redrive.retrying.own import OwnBudget
from redrive.retrying.plan import Plan
from redrive.retrying.record import pass_spent

with extra("httpx"):
    import httpx

# Of a request: its own policy. Of a response: its record.
EXTENSION = "redrive"

KeyOption = bool | Callable[[httpx.Request], str | None]

_PHASES = ("connect", "read", "write", "pool")
# Seconds; a socket has another meaning for a timeout of zero.
_LEAST = 0.001
# Seconds by which httpx ends a step before redrive cancels it; it closes less tidily when cancelled.
_SOONER = 0.05
# Asks for another connection (RFC 9110, 15.5.20), so this one is not read to be used again.
_MISDIRECTED = 421
_GOOD = range(100, 400)
_STATUS = re.compile("HTTP_[0-9]{3}")
# Programs have few policies; those made on the fly must not fill the memory.
_REMEMBERED = 64


def with_key(request: httpx.Request, option: KeyOption) -> httpx.Headers:
    """Return the headers of a request, with a key if it needs one and has none; the request is not changed."""
    headers = request.headers
    if option and request.method != "CONNECT" and not http.is_idempotent(request.method, headers):
        uid = None if option is True else option(request)
        if option is True or uid is not None:
            headers = headers.copy()
            headers[http.IDEMPOTENCY_KEY] = http.idempotency_key(uid)
    return headers


class RequestCall:
    """The state that all attempts of one request share."""

    __slots__ = ("_allowed", "_headers", "_held", "_request", "body", "choice", "name")

    def __init__(self, request: httpx.Request, headers: httpx.Headers, allowed: Allowed) -> None:
        self._request = request
        self._headers = headers
        self._allowed = allowed
        #: What the policy names; set by `plan_for`.
        self.choice = _NOTHING
        self._held: dict[object, httpx.Response] = {}
        self.body = None if isinstance(request.stream, httpx.ByteStream) else Body(request.stream)
        #: Method and host, for messages, events and metrics.
        self.name = f"{request.method} {request.url.host}"

    @property
    def is_repeatable(self) -> bool:
        """True if the request may be repeated although it is unknown whether it took effect."""
        return self._allowed.repeatable(self._request, self._headers)

    def attempt(self, *, is_async: bool = False) -> RequestAttempt:
        """Start an attempt of the transport's colour."""
        request = self._request
        # httpx.Request() would parse the URL and read the body again.
        copy = object.__new__(httpx.Request)
        copy.__dict__.update(request.__dict__)
        copy.headers = httpx.Headers(self._headers)
        if self.body is not None:
            copy.stream = self.body
        elif not hasattr(copy, "_content"):
            # Some transports read `request.content`.
            copy.read()
        attempt = RequestAttempt(self, copy, sooner=_SOONER if is_async else 0.0)
        extensions = {**request.extensions, "timeout": attempt.timeout}
        extensions["trace"] = _coroutine(attempt.on_step) if is_async else attempt.on_step
        extensions.pop(EXTENSION, None)
        copy.extensions = extensions
        return attempt

    # --- responses that have not been given back yet

    def hold(self, response: httpx.Response) -> None:
        """Keep a response, which may be returned to the caller or be followed by another attempt."""
        self._held[_copy()] = response

    def former(self) -> httpx.Response | None:
        """Return the response of the attempt before, if there is one; it has not been closed yet."""
        return self._held.pop(_copy(), None) if self._held else None

    def answer(self, outcome: Outcome[httpx.Response]) -> httpx.Response:
        """Return the response for the caller, or raise the last exception unless it stands for an answer."""
        error = None if isinstance(outcome, Ok) else outcome.error
        if is_a(error, httpx.HTTPStatusError) and any(held is error.response for held in self._held.values()):
            response = error.response
            # An error that `raise_for_status` makes of it has no mark of its own.
            pass_spent(error, response)
        else:
            response = outcome.unwrap()
        record: Record = outcome.record
        response.extensions[EXTENSION] = record
        self._held = {copy: held for copy, held in self._held.items() if held is not response}
        return response

    def leftovers(self) -> list[httpx.Response]:
        """Remove and return the responses that are not returned to the caller; they must be closed."""
        if not self._held:
            return []
        left, self._held = list(self._held.values()), {}
        return left


class RequestAttempt:
    """One attempt of a request."""

    __slots__ = ("_call", "_deadline", "_given", "_sooner", "_trace", "_trail", "request", "timeout")

    def __init__(self, call: RequestCall, request: httpx.Request, *, sooner: float) -> None:
        self._call = call
        #: The copy that is sent.
        self.request = request
        self._given: dict[str, float | None] = request.extensions.get("timeout") or {}
        self._trace: Callable[..., Any] | None = request.extensions.get("trace")
        # Seconds by which the attempt ends before its deadline, or a tenth of the time if that is less.
        self._sooner = sooner
        self._trail = Trail()
        self._deadline = deadline()
        #: The timeouts by phase, kept up to date.
        self.timeout = dict(self._given)
        self._cut()

    def on_step(self, event: str, info: dict[str, Any]) -> Any:  # noqa: ANN401 - the result of the user's callback
        """Record a step of httpcore."""
        self._trail.on_step(event, info)
        self._cut()
        return None if self._trace is None else self._trace(event, info)

    def _cut(self) -> None:
        if self._deadline is None:
            return
        remaining = self._deadline.remaining
        left = max(remaining - min(self._sooner, remaining / 10), _LEAST)
        given, timeout = self._given, self.timeout
        for phase in _PHASES:
            timeout[phase] = min(given.get(phase) or left, left)

    def failed(self, error: BaseException) -> None:
        """Mark the error of the attempt with what is known about the request."""
        mark(error, Evidence(self.request, self._trail.stage(error), self._is_spent()))

    def answered(self, response: httpx.Response) -> httpx.HTTPStatusError | None:
        """Hold a response after its head has arrived, and return the error that stands for a bad one."""
        self._trail.answered = True
        response.request = self.request
        self._call.hold(response)
        status = response.status_code
        named = status in self._call.choice.statuses
        if not named and (status in _GOOD or self._failure(response) is None):
            return None
        message = f"HTTP status {status} for {self._call.name}"
        error = httpx.HTTPStatusError(message, request=self.request, response=response)
        mark(error, Evidence(self.request, Stage.ANSWERED, self._is_spent()))
        return error

    def drains(self, response: httpx.Response) -> bool:
        """Return True if a bad answer should be read, so that its connection is free while the call waits."""
        failure, choice = self._failure(response), self._call.choice
        lasts = failure is None or failure.lasting is not None
        if response.status_code == _MISDIRECTED or (
            lasts and not choice.asks and response.status_code not in choice.statuses
        ):
            return False
        return "content-length" not in response.headers or is_short(response, SHORT)

    def _failure(self, response: httpx.Response) -> Failure | None:
        return http.failure_of(self.request.method, response.status_code, sent=self.request.headers.multi_items())

    def _is_spent(self) -> bool:
        return self._call.body is not None and self._call.body.spent


def _coroutine(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback as a coroutine function, for httpcore's async half."""

    async def trace(event: str, info: dict[str, Any]) -> None:
        result = callback(event, info)
        if result is not None:
            await result

    return trace


def _copy() -> object:
    """Return the run of this copy of a hedged call; other calls have one run."""
    scope = SCOPE.get()
    return None if scope is None else scope.call


# ------------------------------------------------------------------------------------------ the policy of a request


class _Choice(NamedTuple):
    """What a transport's policy says about statuses."""

    #: The statuses that are named, in the policy or as an option of the transport.
    statuses: frozenset[int]
    #: True if a function decides about answers.
    asks: bool


_NOTHING = _Choice(frozenset(), asks=False)


class _Prepared(NamedTuple):
    """A policy prepared for requests of one kind."""

    plan: Plan
    choice: _Choice


def checked(policy: Policy | str | None, name: str, *, allowed: Allowed, hedges: bool) -> Policy:
    """Return the policy of a transport, checked."""
    if policy is not None and not isinstance(policy, Policy | str):
        raise TypeError(f"{name}() takes a policy or a directive, not {policy!r}")
    meant = Policy.parse(policy) if isinstance(policy, str) else policy or Policy()
    if meant.hedge is not None and not hedges:
        raise PolicyValueError(f"{name}: hedge={meant.hedge!r}: only AsyncRetryTransport makes copies of a request")
    # Raises now, and not at the first request.
    plan = Plan(_fit(meant, allowed, repeatable=True, copyable=True), name)
    if not hedges:
        plan.refuse_await("a plain function")
    return meant


def plan_for(policy: Policy, request: httpx.Request, call: RequestCall, allowed: Allowed, own: OwnBudget) -> Plan:
    """Return the plan of a request, with the budget of its transport; the call gets the statuses that it names."""
    # A request may have a policy of its own, and overrides may be in force for either policy.
    meant = base = request.extensions.get(EXTENSION, policy)
    if not isinstance(meant, Policy):
        raise TypeError(f"extensions={{'{EXTENSION}': {meant!r}}}: give a redrive.Policy")
    scope = SCOPE.get()
    for given, changes in () if scope is None else scope.overrides:
        if given == base:
            meant = meant.with_(**changes)
    prepared = _prepared(_ById(meant), allowed, own, call.is_repeatable, call.body is None)
    call.choice = prepared.choice
    return prepared.plan


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
    allowed: Allowed,
    own: OwnBudget,
    repeatable: bool,  # noqa: FBT001 - positional arguments make a faster key
    copyable: bool,  # noqa: FBT001
) -> _Prepared:
    plan = Plan(_fit(key.policy, allowed, repeatable=repeatable, copyable=copyable), "the transport", own)
    statuses = frozenset(_statuses(key.policy)) | (allowed.statuses or frozenset())
    asks = any(callable(part.on) for part in _parts(key.policy)) or any(key.policy.predicates)
    return _Prepared(plan, _Choice(statuses, asks))


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


def _fit(policy: Policy, allowed: Allowed, *, repeatable: bool, copyable: bool) -> Policy:
    if isinstance(policy, Combined):
        left, right = policy.left, policy.right
        if not only_limits(left) and not only_limits(right):
            raise PolicyValueError(
                f"{policy!r}: two policies cannot both read how far a request got; "
                "give the transport one, or retry the function that calls the client"
            )
        fit = partial(_fit, allowed=allowed, repeatable=repeatable, copyable=copyable)
        return type(policy)(*[part if only_limits(part) else fit(part) for part in (left, right)])
    # Left open, and not False: only the user's own word holds for calls around this one.
    idempotent = (repeatable or None) if policy.idempotent is None else policy.idempotent
    hedge = policy.hedge if idempotent and copyable else None
    on = classifier(policy.on, policy.on_result, allowed, named=[name for rule in policy.rules for name in rule.on])
    return policy.with_(on=on, idempotent=idempotent, hedge=hedge)
