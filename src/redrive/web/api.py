"""The JSON API: how its requests are checked, and how its answers, links and problem documents are written. PURE.

Each route of the dashboard is served as JSON below `API`. The form of an action is a struct there, with its types; a
page receives the same fields as texts, as a browser sends them. `redrive.web.openapi` describes all of it.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from http import HTTPStatus
from types import UnionType
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from redrive.operate.exchange import Fault, Page, Refusal, Request
from redrive.operate.problems import kind_of, title_of

#: The place of the JSON API.
API: Final = "/api/v1"

#: The path of the page of a kind of problems.
PROBLEMS: Final = "/problems"

#: Parameters that each action has besides those of its route.
DRY_RUN: Final = "dry_run"

#: The longest ``Idempotency-Key`` and ``X-Request-ID``, in characters.
LONGEST_KEY: Final = 200


_UNCLEAR: Final = Fault(DRY_RUN, "neither 1 nor 0")


class Problem(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A request that is not served (RFC 9457).

    Attributes:
        type: the address of the page of this kind of problem; ``about:blank`` if the status is the whole answer.
        title: of this kind of problem.
        status: of the response.
        detail: what was wrong, and what would be right; the command line prints the same sentence.
        instance: the path of the request.
        request_id: the name of the request in the log of the server.
        errors: the wrong parts of the request.
        retry_after: the seconds after which the same request may succeed.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str
    errors: tuple[Fault, ...] = ()
    retry_after: int | None = None


def problem_of(refusal: Refusal, *, prefix: str, path: str, request_id: str) -> Problem:
    """Return the document of a refusal."""
    retry_after = refusal.headers.get("Retry-After")
    return Problem(
        type=f"{prefix}{API}{PROBLEMS}/{refusal.kind}" if refusal.kind else "about:blank",
        title=title_of(kind_of(refusal.kind)) if refusal.kind else refusal.status.phrase,
        status=refusal.status.value,
        detail=refusal.detail,
        instance=f"{prefix}{path}",
        request_id=request_id,
        errors=refusal.faults,
        retry_after=None if retry_after is None else int(retry_after),
    )


def check_query(query: Mapping[str, str], wanted: type[msgspec.Struct] | None, *, more: tuple[str, ...] = ()) -> None:
    """Check that a route has all given parameters; a misspelled filter would otherwise match everything.

    Raises:
        Refusal: 400, a parameter is unknown, or is empty and no text.
    """
    kinds = {} if wanted is None else {each.name: each.type for each in msgspec.structs.fields(wanted)}
    known = (*kinds, *more)
    for name, value in query.items():
        if name in kinds and not value and str not in (kinds[name], *typing.get_args(kinds[name])):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name} is empty: leave it out", faults=[Fault(name, "empty")])
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            detail = f"there is no parameter {name[:40]!r}; {hint}the parameters are {', '.join(known) or 'none'}"
            raise Refusal(HTTPStatus.BAD_REQUEST, detail, faults=[Fault(name[:40], "unknown")])


def is_dry_run(query: Mapping[str, str]) -> bool:
    """Return True if an action is to be checked only.

    Raises:
        Refusal: 400, the parameter is neither 1 nor 0.
    """
    text = query.get(DRY_RUN, "0")
    if text not in {"0", "1"}:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{DRY_RUN}={text[:40]!r} is neither 1 nor 0", faults=[_UNCLEAR])
    return text == "1"


def check_texts(texts: Mapping[str, str]) -> None:
    """Check that texts can be stored: neither PostgreSQL nor UTF-8 has all characters that a URL can have.

    Raises:
        Refusal: 400, one cannot.
    """
    for name, text in texts.items():
        if "\x00" in text or not _is_utf8(text):
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name} has a NUL, or bytes that are not UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def link_of(request: Request, page: Page) -> str | None:
    """Return the value of the ``Link`` header: the address of the next page of a list; None on the last page."""
    given = {name: value for name, value in page.next.items() if value is not None}
    if not given:
        return None
    return f'<{request.prefix}{quote(request.path)}?{urlencode({**request.query, **given})}>; rel="next"'


def parts_of(data: Any) -> tuple[type, ...]:  # noqa: ANN401 - a type, or a union of types
    """Return the structs that the answer of a route may be."""
    return typing.get_args(data) if isinstance(data, UnionType) else (data,)
