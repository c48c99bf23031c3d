"""How a request of HTTP becomes a `redrive.operate.exchange.Request`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request as HttpRequest

from redrive.operate import forms
from redrive.operate.exchange import Refusal, Request, User
from redrive.operate.table import Row
from redrive.web import api, rng
from redrive.web.api import API

#: The largest body of a request, in bytes, and the seconds within which it arrives.
LARGEST: Final = 64 * 1024
LONGEST: Final = 30.0

#: The most fields of a query or a form: each job of a list, and what is done with them.
FIELDS: Final = 60


async def read_request(request: HttpRequest, user: User, route: Row) -> Request:
    """Read a request, and check what every route checks."""
    query = _pairs(request.url.query)
    places = {name: str(value) for name, value in request.path_params.items()}
    is_action, dry_run = request.method == "POST", False
    if is_api(request):
        api.check_query(query, route.query, more=(api.DRY_RUN,) if is_action else ())
        dry_run = is_action and api.is_dry_run(query)
    form = await read_form(request, route) if is_action else {}
    for texts in (places, query, form):
        api.check_texts(texts)
    return Request(request.method, path_of(request), user, prefix_of(request), query, form, places, dry_run)


async def read_body(request: HttpRequest) -> bytes:
    """Read the body."""
    body = b""
    try:
        async with asyncio.timeout(LONGEST):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST:
                    detail = f"the body of a request has at most {LARGEST:,} bytes"
                    raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    except TimeoutError as error:
        # The rest would be read as the next request.
        detail = f"the body of a request arrives within {LONGEST:g} s"
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, detail, {"Connection": "close"}) from error
    return body


async def read_form(request: HttpRequest, route: Row | None = None) -> Mapping[str, str]:
    """Read the fields of a form; in the JSON API those of an object."""
    body = await read_body(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_json = route is not None and is_api(request)
    allowed = "application/json" if has_json else "application/x-www-form-urlencoded"
    if kind not in {"", allowed}:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is {allowed}, not {kind[:100]!r}")
    if route is not None and has_json:
        return forms.read_form(body, route.form) if route.form is not None else forms.read_texts(body)
    try:
        return _pairs(body.decode())
    except UnicodeDecodeError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}") from error


def _pairs(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS, errors="surrogateescape")
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"a query and a form have at most {FIELDS} fields: {error}") from error
    # Jobs that were ticked in a list stand for the filter that means them.
    ticked = ",".join(value for name, value in pairs if name == "id")
    return dict(pairs) | ({"q": f"id:{ticked}"} if ticked else {})


def request_id(request: HttpRequest) -> str:
    """Return the name that the sender gave to a request, or a random one."""
    given = request.headers.get("x-request-id", "")
    return given if given.isascii() and given.isprintable() and 0 < len(given) <= api.LONGEST_KEY else rng.request_id()


def headers_of(request: HttpRequest) -> Mapping[str, str]:
    """Return the headers, with names in lower case."""
    return dict(request.headers)


def prefix_of(request: HttpRequest) -> str:
    """Return the place where the dashboard is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def path_of(request: HttpRequest) -> str:
    """Return the path below the place where the dashboard is mounted."""
    path = str(request.scope["path"])
    return path.removeprefix(prefix_of(request)) or "/"


def is_api(request: HttpRequest) -> bool:
    """Return True for a request to the JSON API."""
    return path_of(request).startswith(f"{API}/")
