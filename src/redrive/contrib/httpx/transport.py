"""The two transports: a call under a policy around another transport, in each colour."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx

from redrive.contrib.httpx.bodies import SHORT, aread, aread_whole, is_short, read_whole
from redrive.contrib.httpx.bodies import read as read_part
from redrive.contrib.httpx.call import Call, KeyOption, Named, with_key
from redrive.contrib.httpx.request_policy import checked, fitted
from redrive.policy import Policy

__all__ = ["AsyncRetryTransport", "RetryTransport"]


class RetryTransport(httpx.BaseTransport):
    """Retries the requests of an `httpx.Client`.

    Args:
        policy: the policy, or a directive such as ``"5 100ms 5s"``; by default three attempts. Where it names no
            failures in ``on``, all are retried that can be: httpx's transport errors, and answers as
            `redrive.retrying.http` reads them. ``idempotent`` is best left open: it is a fact about each request.
        inner: what sends the requests; by default an `httpx.HTTPTransport`. Options such as ``http2``, ``verify``,
            ``limits`` and ``proxy`` belong there, since a client that is given a transport does not make one. Leave its
            own ``retries`` at 0.
        idempotency_key: give each request that needs one an ``Idempotency-Key``, made once for all its attempts: True;
            or a function that returns for a request what is unlike that of any other call (the id of an order, of a
            job), or None. A key that the request has is left alone. Only for servers that look at it.
        read: bodies of answers that say that they are no longer than this many bytes are read before the transport
            returns, so that one that breaks off half-way is a failed attempt. None: all, in whole; not for downloads
            and event streams.

    Raises:
        PolicyValueError: the policy means nothing sensible here.
        PolicySyntaxError: the directive cannot be read.
        TypeError: the policy is none.

    Attributes:
        policy: as it was given, for ``with transport.policy.override(...):``.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        inner: httpx.BaseTransport | None = None,
        *,
        idempotency_key: KeyOption = False,
        read: int | None = SHORT,
    ) -> None:
        self.policy = checked(policy, type(self).__name__, hedges=False)
        self._inner = inner or httpx.HTTPTransport()
        self._key = idempotency_key
        self._read = read

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and again while the policy says so.

        Args:
            request: as the client gives it. Its extension ``redrive`` may be a policy of its own.

        Returns:
            The last response, whatever its status; ``extensions["redrive"]`` is the record.

        Raises:
            Exception: what the inner transport raised last, with a note, and the record as ``__retry__``.
            CircuitOpen: the breaker that the policy names refuses.
        """
        call = Call(request, with_key(request, self._key))
        policy = fitted(self.policy, request, call)
        try:
            return call.answer(policy.outcome(Named(call.name, self._send, call)))
        finally:
            for response in call.leftovers():
                response.close()

    def _send(self, call: Call) -> httpx.Response:
        former = call.former()
        if former is not None:
            former.close()
        attempt = call.attempt()
        try:
            response = self._inner.handle_request(attempt.request)
            bad = attempt.answered(response)
            if bad is None and is_short(response, self._read):
                read_whole(response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            return response
        if attempt.drains(response):
            read_part(response, SHORT)
        raise bad

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(kind, error, traceback)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


class AsyncRetryTransport(httpx.AsyncBaseTransport):
    """Retries the requests of an `httpx.AsyncClient`, under asyncio or trio.

    What differs from `RetryTransport`: an ``attempt_timeout``, and a deadline that is given, cut an attempt off; and
    requests that may be repeated, with a body of bytes, are hedged if the policy says so.

    Args:
        policy: see `RetryTransport`, as for all that follows.
        inner: what sends the requests; by default an `httpx.AsyncHTTPTransport`.
        idempotency_key: whether requests get one; the same for all copies of a hedged request.
        read: which bodies are read before the transport returns.

    Raises:
        PolicyValueError: the policy means nothing sensible here.
        PolicySyntaxError: the directive cannot be read.
        TypeError: the policy is none.

    Attributes:
        policy: as it was given.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        idempotency_key: KeyOption = False,
        read: int | None = SHORT,
    ) -> None:
        self.policy = checked(policy, type(self).__name__, hedges=True)
        self._inner = inner or httpx.AsyncHTTPTransport()
        self._key = idempotency_key
        self._read = read

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `RetryTransport.handle_request`."""
        call = Call(request, with_key(request, self._key))
        policy = fitted(self.policy, request, call)
        try:
            return call.answer(await policy.aoutcome(Named(call.name, self._send, call)))
        finally:
            for response in call.leftovers():
                await response.aclose()

    async def _send(self, call: Call) -> httpx.Response:
        former = call.former()
        if former is not None:
            await former.aclose()
        attempt = call.attempt(is_async=True)
        try:
            response = await self._inner.handle_async_request(attempt.request)
            bad = attempt.answered(response)
            if bad is None and is_short(response, self._read):
                await aread_whole(response)
        except BaseException as error:
            attempt.failed(error)
            raise
        if bad is None:
            return response
        if attempt.drains(response):
            await aread(response, SHORT)
        raise bad

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(kind, error, traceback)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()
