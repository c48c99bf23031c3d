"""The operations of the official SDK's ``acouchbase`` under an orchestrator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from redrive.contrib import extra
from redrive.contrib.couchbase.operations import is_idempotent
from redrive.contrib.couchbase.sdk import TIMEOUTS, report_of, true_error, verdict_of
from redrive.contrib.couchbase.verdict import Profile, SdkError
from redrive.errors import AmbiguousTimeout, UnambiguousTimeout
from redrive.orchestrator import Attempt, Orchestrator, Request
from redrive.policy.duration import Duration

with extra("couchbase"):
    from couchbase.exceptions import CouchbaseException
    from couchbase.options import AnalyticsOptions, QueryOptions

T = TypeVar("T")

#: The service that a method of a cluster, scope or bucket speaks to.
SERVICE_OF: Mapping[str, str] = MappingProxyType(
    {
        "query": "query",
        "analytics_query": "analytics",
        "search": "search",
        "search_query": "search",
        "view_query": "views",
    }
)

#: What the SDK gets of the time that is left: it knows best how an operation ended, so it should end it first.
_SHARE = 0.95


class CouchbaseCalls:
    """A caller of the operations of ``acouchbase``.

    Args:
        orchestrator: retries, waits and has the circuit breakers; by default one with best effort and 75 s.
        profile: the list of idempotent operations and the rows.
    """

    def __init__(self, orchestrator: Orchestrator | None = None, *, profile: Profile = Profile.EXTENDED) -> None:
        self.orchestrator: Orchestrator = orchestrator or Orchestrator()
        self.profile = profile

    async def kv(
        self,
        method: Callable[..., Awaitable[T]],
        *args: object,
        timeout: Duration | None = "2500ms",
        context: Mapping[str, object] | None = None,
        **options: object,
    ) -> T:
        """Call a key-value operation, once, and return its result.

        Args:
            method: of a collection or its ``binary()``, as in ``collection.upsert``.
            *args: its arguments.
            timeout: for the operation; by default 2.5 s (RFC 0059). Durable writes need more.
            context: of the request, for logs and strategies.
            **options: of the operation.

        Raises:
            AmbiguousTimeout: the time was up, and it is unknown whether the request took effect.
            UnambiguousTimeout: the time was up, and it did not take effect.
            CouchbaseException: the error of the SDK, of the right class.
        """
        name = method.__name__
        idempotent = is_idempotent("kv", name, profile=self.profile)
        request = Request(
            name, service="kv", idempotent=idempotent, timeout=timeout, context=context, endpoint="couchbase kv"
        )
        return await self._run(request, partial(method, *args, **options), is_retried=True)

    async def rows(
        self,
        method: Callable[..., Any],
        *args: object,
        timeout: Duration | None = None,
        context: Mapping[str, object] | None = None,
        **options: object,
    ) -> list[Any]:
        """Request rows from a service and collect them; repeat the request where that is safe.

        Args:
            method: of a cluster, scope or bucket, as in ``cluster.query``.
            *args: its arguments. ``read_only`` in ``QueryOptions`` or ``AnalyticsOptions``, or as a keyword, decides
                whether the request may be repeated; a keyword overrides the options.
            timeout: for all attempts together; None for that of the orchestrator.
            context: of the request, for logs and strategies.
            **options: of the request.

        Raises:
            KeyError: `SERVICE_OF` does not contain the method.
            TypeError: a keyword ``readonly``. The SDK takes it for a parameter of the statement, which may then write.
            AmbiguousTimeout: the time was up, and it is unknown whether the request took effect.
            UnambiguousTimeout: the time was up, and it did not take effect.
            CouchbaseException: the error of the SDK, if it is not retried.
        """
        name = method.__name__
        service = SERVICE_OF[name]
        read_only = _read_only(args, options)
        idempotent = is_idempotent(service, options={"readonly": read_only}, profile=self.profile)

        async def _collect(**given: object) -> list[Any]:
            return [row async for row in method(*args, **options, **given).rows()]

        where = f"couchbase {service}"
        request = Request(
            name, service=service, idempotent=idempotent, timeout=timeout, context=context, endpoint=where
        )
        return await self._run(request, _collect)

    async def _run(self, request: Request, call: Callable[..., Awaitable[T]], *, is_retried: bool = False) -> T:
        async def _send(request: Request, attempt: Attempt) -> T:
            left = attempt.remaining
            given = {} if left is None else {"timeout": timedelta(seconds=left * _SHARE)}
            try:
                return await call(**given)
            except CouchbaseException as error:
                made = self._translated(request, attempt, error, is_retried=is_retried)
                if made is error:
                    raise
                raise made from error

        return await self.orchestrator.run(request, _send)

    def _translated(
        self, request: Request, attempt: Attempt, error: CouchbaseException, *, is_retried: bool
    ) -> Exception:
        """Return the error to raise: the SDK's of the right class, or a timeout."""
        verdict = verdict_of(error, read_only=request.read_only, profile=self.profile)
        report = report_of(error)
        if report.last_dispatched_to:
            attempt.endpoint = report.last_dispatched_to
            attempt.local_address = report.last_dispatched_from
        made: Exception
        if verdict.error in TIMEOUTS:
            attempt.stand(verdict.stage)
            kind = AmbiguousTimeout if verdict.error is SdkError.AMBIGUOUS_TIMEOUT else UnambiguousTimeout
            made = kind(f"{request.operation} timed out: {verdict.detail}")
        else:
            made = true_error(error)
            attempt.stand(verdict.stage)
            made.retry_reason = None if is_retried else verdict.classified()  # type: ignore[attr-defined]
        made.add_note(report.note)
        return made


def _read_only(args: tuple[object, ...], options: Mapping[str, object]) -> bool:
    """Return True if the SDK treats the request as read-only."""
    if "readonly" in options:
        raise TypeError(
            "readonly= would be a parameter of the statement: say read_only=, or give it with named_parameters="
        )
    if "read_only" in options:
        return options["read_only"] is True
    objects = [arg for arg in args if isinstance(arg, QueryOptions | AnalyticsOptions)]
    # Which of several counts, varies.
    return bool(objects) and all(each.get("read_only") is True for each in objects)
