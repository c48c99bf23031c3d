"""One request through a transport, in either colour: its attempts and the responses that they got.

Each attempt sends a copy of the request, so that the copies of a hedged call do not disturb one another, with two
extensions of httpx:

* ``timeout``: the timeouts of the request, cut to the rest of the deadline around it; updated at each step, because the
  time that a connect took is no longer there for the read.
* ``trace``: a callback that records the steps of httpcore, and calls the one of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redrive.contrib.http.classify import Evidence, Request, Response, Terms, mark
from redrive.contrib.http.held import SHORT, Held
from redrive.contrib.http.plans import NOTHING, prepared
from redrive.contrib.transports.bodies import is_short, streams
from redrive.contrib.transports.package import Package, Trail
from redrive.errors.foreign import is_a
from redrive.policy import Failure, Policy, Stage
from redrive.policy.outcome import Outcome
from redrive.retrying.context import deadline
from redrive.retrying.http import IDEMPOTENCY_KEY
from redrive.retrying.own import OwnBudget
from redrive.retrying.plan import Plan

# Of a request: its own policy. Of a response: its record.
EXTENSION = "redrive"

_PHASES = ("connect", "read", "write", "pool")
# Seconds; a socket has another meaning for a timeout of zero.
_LEAST = 0.001
# Seconds by which httpx ends a step before redrive cancels it; it closes less tidily when cancelled.
_SOONER = 0.05


class RequestCall:
    """The state that all attempts of one request share."""

    __slots__ = ("_headers", "_request", "body", "choice", "held", "name", "package", "terms")

    def __init__(self, package: Package, request: Request, terms: Terms, key: str | None) -> None:
        self.package: Package = package
        self.terms: Terms = terms
        self._request = request
        # The request itself is not changed.
        self._headers = request.headers
        if key is not None:
            self._headers = self._headers.copy()
            self._headers[IDEMPOTENCY_KEY] = key
        #: What the policy says about answers; set by `plan`.
        self.choice = NOTHING
        self.held: Held = Held(package)
        is_stream = not isinstance(request.stream, package.httpx.ByteStream)
        self.body = streams(package).body(request.stream) if is_stream else None
        #: Method and host, for messages, events and metrics.
        self.name: str = f"{request.method} {request.url.host}"

    def plan(self, policy: Policy, own: OwnBudget) -> Plan:
        """Return the plan of the request under the policy of its transport, or under its own one."""
        meant = self._request.extensions.get(EXTENSION, policy)
        if not isinstance(meant, Policy):
            raise TypeError(f"extensions={{'{EXTENSION}': {meant!r}}}: give a redrive.Policy")
        repeatable = self.terms.repeatable(self._request.method, self._headers)
        plan, self.choice = prepared(meant, self.terms, own, repeatable=repeatable, copyable=self.body is None)
        return plan

    def attempt(self, *, is_async: bool = False) -> RequestAttempt:
        """Start an attempt of the transport's colour."""
        request = self._request
        # httpx.Request() would parse the URL and read the body again.
        copy = object.__new__(type(request))
        copy.__dict__.update(request.__dict__)
        copy.headers = self._headers.copy()
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

    def give(self, outcome: Outcome[Response]) -> Response:
        """Return the response for the caller, or raise the last exception unless it stands for an answer."""
        response, record = self.held.answer(outcome)
        response.extensions[EXTENSION] = record
        return response


class RequestAttempt:
    """One attempt of a request."""

    __slots__ = ("_call", "_deadline", "_given", "_sooner", "_trace", "_trail", "request", "timeout")

    def __init__(self, call: RequestCall, request: Request, *, sooner: float) -> None:
        self._call = call
        #: The copy that is sent.
        self.request: Request = request
        self._given: dict[str, float | None] = request.extensions.get("timeout") or {}
        self._trace: Callable[..., Any] | None = request.extensions.get("trace")
        # Seconds by which the attempt ends before its deadline, or a tenth of the time if that is less.
        self._sooner = sooner
        self._trail = Trail(call.package)
        self._deadline = deadline()
        #: The timeouts by phase, kept up to date.
        self.timeout: dict[str, float | None] = dict(self._given)
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
        if is_a(error, self._call.package.httpx.RequestError):
            error.request = self.request
        mark(error, Evidence(self.request, self._trail.stage(error), self._is_spent()))

    def answered(self, response: Response) -> Exception | None:
        """Hold a response after its head has arrived, and return the error that stands for a bad one."""
        self._trail.answered = True
        response.request = self.request
        call = self._call
        call.held.hold(response)
        if call.choice.accepts(response.status_code):
            return None
        message = f"HTTP status {response.status_code} for {call.name}"
        error: Exception = call.package.httpx.HTTPStatusError(message, request=self.request, response=response)
        mark(error, Evidence(self.request, Stage.ANSWERED, self._is_spent()))
        return error

    def drains(self, response: Response) -> bool:
        """Return True if a bad answer should be read, so that its connection is free while the call waits."""
        if not self._call.choice.drains(self._failure(response), response.status_code):
            return False
        return "content-length" not in response.headers or is_short(self._call.package, response, SHORT)

    def _failure(self, response: Response) -> Failure | None:
        return Terms(self._call.package, hints=self._call.choice.hints).answer(self.request, response)

    def _is_spent(self) -> bool:
        return self._call.body is not None and self._call.body.spent


def _coroutine(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback as a coroutine function, for httpcore's async half."""

    async def trace(event: str, info: dict[str, Any]) -> None:
        result = callback(event, info)
        if result is not None:
            await result

    return trace
