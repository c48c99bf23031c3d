"""Classification of the errors of an attempt by the progress of its request.

The evidence is stored on the error of the attempt, where `failure_of` reads it, or on the cancellation by a timeout of
the policy, which is the cause of its `TimeoutError`.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from redrive.contrib import extra
from redrive.policy import Failure, Stage
from redrive.policy.classify import Answer, Classifier, On, answer_of, delay_of, is_coroutine_function, reading
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
        if isinstance(error, _NO_CONNECTION) or self._refused(error) or (self.reported and not self.sent):
            return Stage.NOT_SENT
        return Stage.IN_FLIGHT

    def _refused(self, error: BaseException) -> bool:
        """Return True if HTTP/2 proves that the server did nothing; h2's event is the argument of httpcore's error."""
        event = next(iter(getattr(error.__cause__, "args", ())), None)
        last = getattr(event, "last_stream_id", None)
        if last is not None:
            return self.stream is not None and self.stream > last
        reset = getattr(event, "stream_id", None)
        return reset is not None and getattr(event, "error_code", None) == _REFUSED_STREAM


def mark(error: BaseException, evidence: Evidence) -> None:
    """Store the evidence on an error."""
    if isinstance(error, httpx.RequestError):
        error.request = evidence.request
    BaseException.__setattr__(error, "__http__", evidence)


def failure_of(error: BaseException) -> Failure | None:
    """Describe an error of an httpx client, for the policy of a function; return None for other errors.

    ::

        @redrive.retry("5 100ms 5s", on=redrive.contrib.httpx.failure_of)
        def fetch():
            return httpx.get("https://example.org/").raise_for_status()

    As with `redrive.retrying.http.failure_of`, the policy need not know the request: a failure is *in flight* only if
    the request may not be repeated. For a plain client only the class of the exception is known; a `RetryTransport`
    under the function leaves the retries to it, and knows more. A failure that a retry would repeat is no candidate.
    """
    if not isinstance(error, BY_DEFAULT) or (isinstance(error, TimeoutError) and _evidence(error) is None):
        return None
    failure = _described(error)
    request = _request(error)
    if request is not None and http.is_idempotent(request.method, request.headers) and failure.candidate is not False:
        return failure._replace(stage=Stage.ANSWERED)
    return failure


def classifier(on: On | None) -> Classifier:
    """Return the classifier of a transport; ``on`` selects from what can be retried, and None selects all of it."""
    if not callable(on) or isinstance(on, type):
        return reading(_described, on or BY_DEFAULT)
    return _asking(on)


def _asking(ask: Classifier) -> Classifier:
    def classify(error: BaseException) -> Failure | None:
        return _answered(error, answer_of(ask(error), "on", ask))

    async def aclassify(error: BaseException) -> Failure | None:
        return _answered(error, await cast("Awaitable[Answer]", ask(error)))

    return aclassify if is_coroutine_function(ask) else classify


def _answered(error: BaseException, answer: Answer) -> Failure | None:
    if isinstance(answer, Failure):
        return answer
    delay = delay_of(answer)
    if delay is None and not answer:
        return None
    failure = _described(error)
    if failure.candidate is None:
        failure = failure._replace(candidate=True)
    if delay is not None:
        return failure._replace(reason="RETRY_AFTER", hint=delay)
    return failure._replace(reason=answer) if isinstance(answer, str) else failure


def _described(error: BaseException) -> Failure:
    evidence = _evidence(error)
    failure = _answer(error) if isinstance(error, httpx.HTTPStatusError) else _broken(error, evidence)
    if evidence is not None and evidence.spent and failure.candidate is not False:
        return failure._replace(permanent=failure.permanent or _SPENT)
    return failure


def _answer(error: httpx.HTTPStatusError) -> Failure:
    request, response = error.request, error.response
    given, sent = response.headers.multi_items(), request.headers.multi_items()
    failure = http.failure_of(request.method, response.status_code, given, sent=sent, error=error)
    # A redirect, of which `raise_for_status` complains.
    return failure or Failure.of(error)._replace(candidate=False)


def _broken(error: BaseException, evidence: Evidence | None) -> Failure:
    stage = Trail().stage(error) if evidence is None else evidence.stage
    timed_out = isinstance(error, httpx.TimeoutException | TimeoutError)
    failure = Failure.of(error, reason="TIMEOUT" if timed_out else None, stage=stage)
    hopeless = isinstance(error, _HOPELESS) or _is_distrusted(error)
    return failure._replace(candidate=False) if hopeless else failure


def _is_distrusted(error: BaseException) -> bool:
    """Return True if a certificate was not trusted; httpcore has that as the context of its error, or as its text."""
    if not isinstance(error, httpx.ConnectError):
        return False
    believed = not any(isinstance(link, ssl.SSLCertVerificationError) for link in _chain(error))
    return not believed or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _evidence(error: BaseException) -> Evidence | None:
    """Return the evidence on an error, or on the cancellation that became a `TimeoutError`."""
    for link in (error, error.__cause__ if isinstance(error, TimeoutError) else None):
        found = getattr(link, "__http__", None)
        if isinstance(found, Evidence):
            return found
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _request(error: BaseException) -> httpx.Request | None:
    evidence = _evidence(error)
    if evidence is not None:
        return evidence.request
    try:
        request: httpx.Request | None = getattr(error, "request", None)
    except RuntimeError:  # httpx: it was raised outside of a client
        return None
    return request
