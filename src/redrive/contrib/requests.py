"""An adapter for requests that retries.

::

    session = requests.Session()
    session.mount("https://", RetryAdapter("5 100ms 5s"))
    page = session.get("https://example.org/")

It replaces the ``max_retries`` of `requests.adapters.HTTPAdapter`: with urllib3's ``Retry`` a body that is a generator
is sent again as an empty one. May import: `redrive.retrying` and below, requests and urllib3 (the extra ``requests``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast, overload
from urllib.parse import urlsplit

from redrive.contrib import extra
from redrive.contrib.http import classify
from redrive.contrib.http.classify import Evidence, Library, Request, Terms, mark
from redrive.contrib.http.held import SHORT, Held, is_declared
from redrive.contrib.http.models import for_models
from redrive.contrib.http.plans import Choice, checked, key_for, prepared
from redrive.errors import ConfigurationError
from redrive.errors.foreign import attribute, is_a, set_attribute
from redrive.policy import Failure, Policy, Stage
from redrive.policy.failure import Lasting
from redrive.policy.hints import Headers
from redrive.policy.stage import is_distrusted, is_redirected, origins, stage_of
from redrive.retrying import http
from redrive.retrying.context import deadline
from redrive.retrying.loops import outcome
from redrive.retrying.own import OwnBudget
from redrive.retrying.state import start

with extra("requests"):
    import requests
    import urllib3
    from requests.adapters import HTTPAdapter
    from urllib3 import exceptions

__all__ = ["RetryAdapter", "failure_of", "for_models"]

# Seconds; a socket has another meaning for a timeout of zero.
_LEAST = 0.001

_HOPELESS = (
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
)
_NO_CONNECTION = (
    *_HOPELESS,
    exceptions.NewConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.ProxyError,
    requests.exceptions.ConnectTimeout,
    requests.exceptions.ProxyError,
)


class _Requests(Library):
    """The errors of requests."""

    name = "requests"
    answers: type[BaseException] = requests.HTTPError
    by_default: tuple[type[BaseException], ...] = (
        requests.ConnectionError,
        requests.Timeout,
        requests.exceptions.ChunkedEncodingError,
        requests.HTTPError,
        *_HOPELESS,
    )

    def __reduce__(self) -> str:
        return "LIBRARY"

    def status_of(self, response: requests.Response) -> int:
        """See `Library.status_of`."""
        return response.status_code

    def pairs(self, headers: Mapping[str, str | bytes]) -> Headers:
        """See `Library.pairs`."""
        given = headers.items()
        return [(name, value.decode("latin-1") if isinstance(value, bytes) else value) for name, value in given]

    def request_of(self, error: BaseException) -> Request | None:
        """Return the request that another attempt sends; None if it is unknown."""
        response = self.response_of(error)
        if response is not None:
            # That before all redirects.
            return (response.history or [response])[0].request
        # The error of a redirect has the request to its target.
        return super().request_of(error) or (None if is_redirected(error) else attribute(error, "request"))

    def is_redirected(self, error: BaseException) -> bool:
        """See `Library.is_redirected`."""
        return is_redirected(error)

    def broken(self, error: BaseException, evidence: Evidence | None) -> Failure:
        """See `Library.broken`."""
        stage = _stage(error) if evidence is None else evidence.stage
        failure = Failure.of(error, reason="TIMEOUT" if is_a(error, requests.Timeout) else None, stage=stage)
        hopeless = is_a(error, _HOPELESS) or is_distrusted(error)
        return failure._replace(lasting=Lasting(stage=stage)) if hopeless else failure


def _stage(error: BaseException) -> Stage:
    """Return how far a request got that ended in an error without an answer."""
    if is_redirected(error):
        return Stage.IN_FLIGHT
    is_unsent = any(is_a(link, _NO_CONNECTION) for link in origins(error))
    return Stage.NOT_SENT if is_unsent or stage_of(error) is Stage.NOT_SENT else Stage.IN_FLIGHT


LIBRARY = _Requests()


class RetryAdapter(HTTPAdapter):
    """An adapter that retries the requests of a `requests.Session`; mount it for ``https://`` or for one server.

    Each redirect is a request of its own. With ``stream=False`` (the default of requests) the body of an answer is read
    within the attempt, so that one that breaks off is a failed attempt.

    Args:
        policy: the policy, or a directive such as ``"5 100ms 5s"``; by default three attempts. Without ``on`` it
            retries connection errors and timeouts of requests, and answers according to `redrive.retrying.http`. Leave
            ``idempotent`` open: it is set for each request.
        idempotency_key: see `redrive.contrib.httpx.RetryTransport`.
        statuses: see `redrive.contrib.httpx.RetryTransport`.
        methods: see `redrive.contrib.httpx.RetryTransport`.
        **options: those of `requests.adapters.HTTPAdapter`, such as ``pool_maxsize``; except for ``max_retries``, which
            stays 0.

    Raises:
        PolicyValueError: the policy is not valid here, or a status or a method is unknown.
        PolicySyntaxError: the directive cannot be read.
        ConfigurationError: ``max_retries`` is given.
        TypeError: the policy is neither a policy nor a directive.
    """

    # What is pickled with a session.
    __attrs__ = [*HTTPAdapter.__attrs__, "policy", "_terms", "_key"]  # noqa: RUF012 - as in requests

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        idempotency_key: bool | Callable[[requests.PreparedRequest], str | None] = False,
        statuses: Iterable[int] | None = None,
        methods: Iterable[str] | None = None,
        **options: Any,  # noqa: ANN401 - of another class
    ) -> None:
        if options.pop("max_retries", 0) != 0:
            raise _max_retries()
        super().__init__(**options)
        self._terms = Terms.of(LIBRARY, statuses, methods)
        #: The policy as it was given, for ``with adapter.policy.override(...):``.
        self.policy: Policy = checked(policy, type(self).__name__, terms=self._terms, hedges=False, awaits=False)
        self._own = OwnBudget()
        self._key = idempotency_key

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._own = OwnBudget()

    def send(  # noqa: PLR0917 - as in requests
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as in requests
        timeout: Any = None,  # noqa: ANN401 - of several types
        verify: bool | str = True,  # noqa: FBT001, FBT002 - as in requests
        cert: Any = None,  # noqa: ANN401 - of several types
        proxies: dict[str, str] | None = None,
    ) -> requests.Response:
        """Send a request, and repeat it while the policy decides so.

        Return the last response, whatever its status; its attribute ``__retry__`` is the record.

        Raises:
            requests.RequestException: the last error, with a note, and the record as ``__retry__``.
            CircuitOpen: the breaker of the policy refuses.
            ConfigurationError: the attribute ``max_retries`` was set.
        """
        if getattr(self.max_retries, "total", self.max_retries) != 0:
            raise _max_retries()
        key = key_for(request, self._key, LIBRARY)
        if key is not None:
            request = request.copy()
            request.headers[http.IDEMPOTENCY_KEY] = key
        repeatable = self._terms.may_repeat(request)
        plan, choice = prepared(self.policy, self._terms, self._own, repeatable=repeatable, copyable=False)
        call = _Call(request, choice, stream=stream, timeout=timeout)
        state = start(plan, f"{request.method} {urlsplit(request.url or '').hostname}")
        options = {"verify": verify, "cert": cert, "proxies": proxies}
        try:
            response, record = call.held.answer(outcome(state, self._attempt, (call, options), {}))
        finally:
            for left in call.held.leftovers():
                left.close()
        if call.broken is not None:
            set_attribute(call.broken, "__retry__", record)
            raise call.broken
        response.__retry__ = record
        return cast("requests.Response", response)

    def _attempt(self, call: _Call, options: dict[str, Any]) -> requests.Response:
        call.begin()
        try:
            response = super().send(call.sent, call.stream, call.timeout, **options)
        except BaseException as error:
            call.failed(error, _stage(error))
            raise
        bad = call.answered(response, self._terms)
        if bad is not None:
            raise bad
        if not call.stream:
            try:
                response.content  # noqa: B018 - reads the body, and gives the connection back
            except BaseException as error:
                call.failed(error, Stage.IN_FLIGHT)
                raise
        return response


def _max_retries() -> ConfigurationError:
    return ConfigurationError("max_retries: leave it at 0, because the policy decides about the retries")


class _Call:
    """The state that all attempts of one request share."""

    def __init__(self, request: requests.PreparedRequest, choice: Choice, *, stream: bool, timeout: Any) -> None:  # noqa: ANN401
        #: The request, and what is sent: the same, or a copy with a body that records that it was read.
        self.request = self.sent = request
        self.stream = stream
        self.held = Held(LIBRARY)
        #: The error that ended the body of the last answer, which is a failed one.
        self.broken: Exception | None = None
        self._choice = choice
        self._timeout = timeout
        self._begun = False
        self._once: _Once | None = None
        body: Any = request.body
        is_file = hasattr(body, "read")
        # Where a file stood when the request was made; requests keeps an object if it cannot tell.
        self._place = getattr(request, "_body_position", None) if is_file else None
        if not isinstance(self._place, int) and (is_file or not isinstance(body, Collection | None)):
            self._once = _Pipe(body) if is_file else _Once(body)
            self.sent = request.copy()
            self.sent.body = cast("Any", self._once)

    @property
    def is_spent(self) -> bool:
        """True if a part of the body has been read, and cannot be read again."""
        return self._once is not None and self._once.begun

    @property
    def timeout(self) -> Any:  # noqa: ANN401 - of several types
        """The timeouts of the request, cut to the rest of the deadline around it."""
        limit, given = deadline(), self._timeout
        if limit is None:
            return given
        left = max(limit.remaining, _LEAST)
        if isinstance(given, urllib3.Timeout):
            given = (given.connect_timeout, given.read_timeout)
        each = given if isinstance(given, tuple) else (given, given)
        return tuple(min(seconds, left) if isinstance(seconds, int | float) else left for seconds in each)

    def begin(self) -> None:
        """Close the response of the attempt before, and set the body to where it began."""
        former = self.held.former()
        if former is not None:
            former.close()
        self.broken = None
        if self._begun and isinstance(self._place, int):
            cast("Any", self.request.body).seek(self._place)
        self._begun = True

    def failed(self, error: BaseException, stage: Stage) -> None:
        """Mark the error of an attempt with what is known about the request."""
        if is_a(error, requests.RequestException):
            error.request = self.request
        mark(error, Evidence(self.request, stage, self.is_spent))

    def answered(self, response: requests.Response, terms: Terms) -> requests.HTTPError | None:
        """Hold a response after its head has arrived, and return the error that stands for a bad one."""
        response.request = self.request
        self.held.hold(response)
        status, choice = response.status_code, self._choice
        if choice.accepts(status):
            return None
        failure = terms._replace(hints=choice.hints).answer(self.request, response)
        if choice.drains(failure, status):
            self._drain(response)
        bad = requests.HTTPError(f"HTTP status {status}", request=self.request, response=response)
        self.failed(bad, Stage.ANSWERED)
        return bad

    def _drain(self, response: requests.Response) -> None:
        """Read a failed answer, so that its connection is free while the call waits."""
        if self.stream and not is_declared(response.headers.get("Content-Length", ""), SHORT):
            return
        try:
            response.content  # noqa: B018 - reads the body, and gives the connection back
        except Exception as error:  # noqa: BLE001 - for the reader of the last answer
            self.broken = error


class _Once:
    """A body that can be read once, and records that it was."""

    def __init__(self, body: Any) -> None:  # noqa: ANN401 - of the user
        self._body = body
        self.begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.begun = True
        yield from self._body


class _Pipe(_Once):
    """A file that cannot seek."""

    def read(self, size: int = -1) -> bytes:
        """Read bytes."""
        self.begun = True
        return cast("bytes", self._body.read(size))


@overload
def failure_of(
    error: BaseException, *, statuses: Iterable[int] | None = ..., methods: Iterable[str] | None = ...
) -> Failure | None: ...
@overload
def failure_of(
    *, statuses: Iterable[int] | None = ..., methods: Iterable[str] | None = ...
) -> Callable[[BaseException], Failure | None]: ...
def failure_of(
    error: BaseException | None = None, *, statuses: Iterable[int] | None = None, methods: Iterable[str] | None = None
) -> Failure | Callable[[BaseException], Failure | None] | None:
    """Describe an error of requests, for the policy of a function; see `redrive.contrib.httpx.failure_of`."""
    return classify.failure_of(LIBRARY, error, statuses, methods)
