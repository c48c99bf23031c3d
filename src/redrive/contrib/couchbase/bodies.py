"""Responses of the search and view services, which have no codes: an HTTP status, and words in the body.

**Search** is retried for 429, unless the body names one of four limits: then it is a rate limit, which surfaces.

**Views** have the longest list of RFC 0049, and its two traps. 302 stands in it twice; the row with a name of its own
wins. And the bodies are matched as text: ``"reason":"missing"``, ``{not_found, missing_named_view}``. Real servers
write the latter with a line break in it, and some print JSON with blanks, so the extended profile lets any blanks
stand there; the strict one does not. RFC 0058 calls 401 an authentication failure, and RFC 0049 retries it:
it is retried under the reason that the list gives, and surfaces as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass

from redrive.contrib.couchbase.service import AllCodes
from redrive.contrib.couchbase.verdict import SUCCESS, Profile, SdkError, Verdict

E = SdkError


@dataclass(frozen=True, slots=True)
class BodyRow:
    """The verdict on an HTTP status with certain words in the body; the first row that matches applies."""

    statuses: Container[object]
    error: SdkError
    #: None: the request is not retried.
    reason: str | None = None
    #: Patterns, all of which must be found in the body.
    words: tuple[str, ...] = ()
    #: Texts that the strict profile searches for instead; empty: it takes ``words`` too.
    literals: tuple[str, ...] = ()

    def matches(self, status: int, body: str, profile: Profile) -> bool:
        """Return True if the row applies to a response."""
        if status not in self.statuses:
            return False
        if profile is Profile.STRICT and self.literals:
            return all(literal in body for literal in self.literals)
        return all(re.search(word, body) for word in self.words)


_LIMITS = r"num_concurrent_requests|num_queries_per_min|ingress_mib_per_min|egress_mib_per_min"

#: RFC 0049's row and RFC 0058's errors of the search service.
SEARCH: tuple[BodyRow, ...] = (
    BodyRow((429,), E.RATE_LIMITED, words=(_LIMITS,)),
    BodyRow((429,), E.COUCHBASE_EXCEPTION, "SEARCH_TOO_MANY_REQUESTS"),
    BodyRow((400,), E.QUOTA_LIMITED, words=("num_fts_indexes",)),
    BodyRow((400,), E.INDEX_NOT_FOUND, words=("index not found",)),
    BodyRow((401, 403), E.AUTHENTICATION_FAILURE),
    BodyRow((500,), E.INTERNAL_SERVER_FAILURE),
    BodyRow(AllCodes(), E.COUCHBASE_EXCEPTION),
)

# As bytes of the body: a line break inside of a JSON string is a backslash and an n.
_BLANKS = r"(?:\s|\\[nrt])*"
_TEMPORARY = "VIEWS_TEMPORARY_FAILURE"

#: RFC 0049's list and RFC 0058's errors of the view service.
VIEWS: tuple[BodyRow, ...] = (
    BodyRow((302,), E.COUCHBASE_EXCEPTION, "VIEWS_NO_ACTIVE_PARTITION"),
    BodyRow((401,), E.AUTHENTICATION_FAILURE, _TEMPORARY),
    BodyRow((300, 301, 303, 307, 408, 409, 412, 416, 417, 501, 502, 503, 504), E.COUCHBASE_EXCEPTION, _TEMPORARY),
    BodyRow(
        (404,), E.VIEW_NOT_FOUND, _TEMPORARY, words=(r'"reason"\s*:\s*"missing"',), literals=('"reason":"missing"',)
    ),
    BodyRow((404,), E.VIEW_NOT_FOUND),
    BodyRow(
        (500,),
        E.VIEW_NOT_FOUND,
        words=("error", rf"\{{not_found,{_BLANKS}missing_named_view\}}"),
        literals=("error", "{not_found, missing_named_view}"),
    ),
    BodyRow((500,), E.INTERNAL_SERVER_FAILURE, words=("error", '"badarg"')),
    BodyRow((500,), E.INTERNAL_SERVER_FAILURE, _TEMPORARY),
    BodyRow(AllCodes(), E.COUCHBASE_EXCEPTION),
)

_SUCCESSES = range(200, 300)


def classify_search(http_status: int, body: str, *, profile: Profile = Profile.EXTENDED) -> Verdict:
    """Return the verdict on a response of the search service.

    A partial success (some partitions failed) is a success; its body names the missing partitions.
    """
    return _classify(SEARCH, http_status, body, profile)


def classify_views(http_status: int, body: str, *, profile: Profile = Profile.EXTENDED) -> Verdict:
    """Return the verdict on a response of the view service."""
    return _classify(VIEWS, http_status, body, profile)


def _classify(rows: Iterable[BodyRow], http_status: int, body: str, profile: Profile) -> Verdict:
    if http_status in _SUCCESSES:
        return SUCCESS
    # The last row takes all.
    row = next(row for row in rows if row.matches(http_status, body, profile))
    return Verdict(row.reason, row.error, detail=f"HTTP status {http_status}: {body}".rstrip(": "))
