"""Classification of the errors of an attempt by the progress of its request.

The evidence is stored on the error of the attempt, where `failure_of` reads it, or on the cancellation by a timeout of
the policy, which is the cause of its `TimeoutError`.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, cast, overload

from redrive.contrib import extra
from redrive.errors.foreign import attribute, cause_of, context_of, is_a, set_attribute
from redrive.policy import Failure, Stage
from redrive.policy.classify import (
    Answer,
    Classifier,
    On,
    Predicate,
    answer_of,
    delay_of,
    is_coroutine_function,
    reading,
)
from redrive.policy.failure import Lasting
from redrive.policy.stage import frames
from redrive.retrying import http

with extra("httpx"):
    import httpx

#: What is retried where a policy names nothing, as far as it can help at all.
BY_DEFAULT = (httpx.TransportError, httpx.HTTPStatusError, TimeoutError)

_NO_CONNECTION = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
# The code of RFC 9113, section 7.
_REFUSED_STREAM = 7
_CLIENT = "httpx._client"
_SENDING = ".send_request_headers.started"
_SPENT = "the body of the request is a stream that has been read and cannot be read again"


class Evidence(NamedTuple):
    """The evidence about a failed attempt."""

    request: httpx.Request
    stage: Stage
    #: True if the body of the request has been read, and cannot be read again.
    spent: bool = False


class Trail:
    """The steps of httpcore in one attempt."""

    __slots__ = ("answered", "reported", "sent", "stream")

    def __init__(self) -> None:
        # True if httpcore has reported a step, has begun to write the request, has received the head of the answer.
        self.reported = self.sent = self.answered = False
        # The number of the HTTP/2 stream.
        self.stream: int | None = None

    def on_step(self, event: str, info: Mapping[str, Any]) -> None:
        """Record a step that the ``trace`` extension reports."""
        self.reported = True
        if event.endswith(_SENDING) and info["request"].method != b"CONNECT":
            self.sent = True
            self.stream = info.get("stream_id")

    def stage(self, error: BaseException) -> Stage:
        """Return the progress of an attempt that ended in an error."""
        if self.answered:
            return Stage.IN_FLIGHT
        # The request was not sent if the error has no connection (after it has begun to send, httpcore changes the
        # connection only if the server has proved that it did nothing), if HTTP/2 proves that the server did nothing,
        # or if none of the reported steps wrote the request; the CONNECT of a tunnel through a proxy does not count.
        if is_a(error, _NO_CONNECTION) or self._refused(error) or (self.reported and not self.sent):
            return Stage.NOT_SENT
        return Stage.IN_FLIGHT

    def _refused(self, error: BaseException) -> bool:
        """Return True if HTTP/2 proves that the server did nothing; h2's event is the argument of httpcore's error."""
        event = next(iter(attribute(cause_of(error), "args", ())), None)
        last = getattr(event, "last_stream_id", None)
        if last is not None:
            return self.stream is not None and self.stream > last
        reset = getattr(event, "stream_id", None)
        return reset is not None and getattr(event, "error_code", None) == _REFUSED_STREAM


def mark(error: BaseException, evidence: Evidence) -> None:
    """Store the evidence on an error."""
    if is_a(error, httpx.RequestError):
        error.request = evidence.request
    set_attribute(error, "__http__", evidence)


class Allowed(NamedTuple):
    """The statuses that are retried and the methods that may be repeated; None for those of `redrive.retrying.http`."""

    statuses: frozenset[int] | None = None
    methods: frozenset[str] | None = None

    @classmethod
    def of(cls, statuses: Iterable[int] | None, methods: Iterable[str] | None) -> Allowed:
        """Check what a user has given; raise PolicyValueError for an unknown status or method."""
        return cls(http.checked_statuses(statuses), http.checked_methods(methods))

    def repeatable(self, request: httpx.Request, headers: httpx.Headers) -> bool:
        """Return True if a request with these headers may be repeated although it may have taken effect."""
        methods = http.IDEMPOTENT if self.methods is None else self.methods
        return http.is_idempotent(request.method, headers, methods=methods)


USUAL = Allowed()


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
    """Describe an error of an httpx client, for the policy of a function; return None for other errors.

    ::

        @redrive.retry("5 100ms 5s", on=redrive.contrib.httpx.failure_of)
        def fetch():
            return httpx.get("https://example.org/").raise_for_status()

    As with `redrive.retrying.http.failure_of`, the policy need not know the request: a failure is *in flight* only if
    the request may not be repeated. For a plain client only the class of the exception is known; a `RetryTransport`
    under the function leaves the retries to it, and knows more. A failure that a retry would repeat is lasting.

    Args:
        error: the error. Without it the result is a function of an error with the statuses and methods given here:
            ``on=failure_of(statuses=[404, 503], methods=["GET", "POST"])``.
        statuses: the statuses that are retried, as in `RetryTransport`.
        methods: the methods that may be repeated, as in `RetryTransport`.

    Raises:
        PolicyValueError: ``statuses`` or ``methods`` have an unknown status or method.
    """
    allowed = Allowed.of(statuses, methods)
    read = partial(_of_client, allowed=allowed)
    return read if error is None else read(error)


def _of_client(error: BaseException, *, allowed: Allowed) -> Failure | None:
    if not is_a(error, BY_DEFAULT) or (is_a(error, TimeoutError) and _evidence(error) is None):
        return None
    failure = _read(error, allowed)
    request = _request(error)
    if request is not None and failure.lasting is None and allowed.repeatable(request, request.headers):
        return failure._replace(stage=Stage.ANSWERED)
    return failure


# ----------------------------------------------------------------------------------------------------- in a transport


def classifier(
    on: On | None, on_result: Predicate | None = None, allowed: Allowed = USUAL, named: Iterable[str] = ()
) -> Classifier:
    """Return the classifier of a transport; ``on`` selects from what can be retried, and None selects all of it.

    A status that ``on`` or a rule (``named``) names, and an answer that ``on`` or ``on_result`` chooses, is retried
    although it is lasting.
    """
    if not callable(on) or isinstance(on, type):
        choose: Classifier = partial(_named, reading(partial(_read, allowed=allowed), on or BY_DEFAULT, named))
    else:
        choose = _asking(on, allowed)
    return choose if on_result is None else _rejecting(choose, on_result, allowed)


def _named(read: Callable[[BaseException], Failure | None], error: BaseException) -> Failure | None:
    failure = read(error)
    return None if failure is None else _unless_spent(error, failure)


def _asking(ask: Classifier, allowed: Allowed) -> Classifier:
    def classify(error: BaseException) -> Failure | None:
        return _answered(error, answer_of(ask(error), "on", ask), allowed)

    async def aclassify(error: BaseException) -> Failure | None:
        return _answered(error, await cast("Awaitable[Answer]", ask(error)), allowed)

    return aclassify if is_coroutine_function(ask) else classify


def _rejecting(choose: Classifier, rejects: Predicate, allowed: Allowed) -> Classifier:
    """Return a classifier that also shows the answers that it would not retry to ``on_result``."""

    def is_open(error: BaseException, failure: Answer) -> bool:
        chosen = isinstance(failure, Failure) and failure.candidate is not False
        return is_a(error, httpx.HTTPStatusError) and not chosen

    def classify(error: BaseException) -> Answer:
        failure = cast("Answer", choose(error))
        if is_open(error, failure) and answer_of(rejects(_response(error)), "on_result", rejects):
            return _answered(error, True, allowed)  # noqa: FBT003 - the answer of a classifier
        return failure

    async def aclassify(error: BaseException) -> Answer:
        failure = choose(error)
        if isinstance(failure, Awaitable):
            failure = await failure
        if is_open(error, failure):
            rejected = rejects(_response(error))
            if await rejected if isinstance(rejected, Awaitable) else rejected:
                return _answered(error, True, allowed)  # noqa: FBT003 - the answer of a classifier
        return failure

    return aclassify if is_coroutine_function(choose) or is_coroutine_function(rejects) else classify


def _response(error: BaseException) -> httpx.Response:
    return cast("httpx.HTTPStatusError", error).response


def _answered(error: BaseException, answer: Answer, allowed: Allowed) -> Failure | None:
    if isinstance(answer, Failure):
        return answer
    delay = delay_of(answer)
    if delay is None and not answer:
        return None
    failure = _read(error, allowed)
    if failure.candidate is None:
        failure = failure._replace(candidate=True)
    failure = _unless_spent(error, failure)
    if delay is not None:
        return failure._replace(reason="RETRY_AFTER", hint=delay)
    return failure._replace(reason=answer) if isinstance(answer, str) else failure


def _unless_spent(error: BaseException, failure: Failure) -> Failure:
    """Return the failure of an attempt; that of a request that cannot be sent again is permanent."""
    evidence = _evidence(error)
    if evidence is not None and evidence.spent and failure.candidate is not False:
        return failure._replace(permanent=failure.permanent or _SPENT)
    return failure


# ------------------------------------------------------------------------------------------------------------ reading


def _read(error: BaseException, allowed: Allowed) -> Failure:
    if is_a(error, httpx.HTTPStatusError):
        return _answer(error, allowed)
    failure = _broken(error, _evidence(error))
    request = None if allowed.methods is None or failure.stage is Stage.NOT_SENT else _request(error)
    if request is None or allowed.repeatable(request, request.headers):
        return failure
    return failure._replace(lasting=http.unlisted(request.method, failure.error_type))


def _answer(error: httpx.HTTPStatusError, allowed: Allowed) -> Failure:
    response, earlier = error.response, _earlier(error)
    # Another attempt repeats the request before a redirect.
    request = earlier[0].request if earlier else error.request
    given, sent = response.headers.multi_items(), request.headers.multi_items()
    statuses, methods = allowed
    failure = http.failure_of(
        request.method, response.status_code, given, sent=sent, error=error, statuses=statuses, methods=methods
    )
    is_repeatable = allowed.repeatable(request, request.headers)
    if failure is None:
        # A redirect, of which `raise_for_status` complains, or a success that the policy names.
        stage = Stage.ANSWERED if is_repeatable else Stage.IN_FLIGHT
        return Failure.of(error)._replace(reason=f"HTTP_{response.status_code}", lasting=Lasting(stage=stage))
    if earlier and not is_repeatable:
        # The target of the redirect has refused, and not the server that accepted the request.
        return failure._replace(stage=Stage.IN_FLIGHT)
    return failure


def _broken(error: BaseException, evidence: Evidence | None) -> Failure:
    stage = Trail().stage(error) if evidence is None else evidence.stage
    if _earlier(error):
        stage = Stage.IN_FLIGHT
    timed_out = is_a(error, (httpx.TimeoutException, TimeoutError))
    failure = Failure.of(error, reason="TIMEOUT" if timed_out else None, stage=stage)
    hopeless = is_a(error, _HOPELESS) or _is_distrusted(error)
    return failure._replace(lasting=Lasting(stage=stage)) if hopeless else failure


def _is_distrusted(error: BaseException) -> bool:
    """Return True if a certificate was not trusted; httpcore has that as the context of its error, or as its text."""
    if not is_a(error, httpx.ConnectError):
        return False
    believed = not any(is_a(link, ssl.SSLCertVerificationError) for link in _chain(error))
    return not believed or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _evidence(error: BaseException) -> Evidence | None:
    """Return the evidence on an error, or on the cancellation that became a `TimeoutError`."""
    for link in (error, cause_of(error) if is_a(error, TimeoutError) else None):
        found = attribute(link, "__http__")
        if isinstance(found, Evidence):
            return found
    return None


def _earlier(error: BaseException) -> list[httpx.Response]:
    """Return the redirects before the request that failed: it was sent by a client, not by a transport."""
    if is_a(error, httpx.HTTPStatusError):
        return error.response.history
    for (module, name), frame in frames(error):
        if module == _CLIENT and name.endswith("._send_handling_redirects"):
            return cast("list[httpx.Response]", frame.f_locals.get("history") or [])
    return []


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = cause_of(link) or context_of(link)


def _request(error: BaseException) -> httpx.Request | None:
    """Return the request that another attempt sends; None if it is unknown."""
    earlier = _earlier(error)
    if earlier:
        return earlier[0].request
    evidence = _evidence(error)
    if evidence is not None:
        return evidence.request
    # The property of httpx raises RuntimeError for an error that was raised outside of a client.
    request: httpx.Request | None = attribute(error, "request")
    return request
