"""The JSON API: how its requests are checked, and how its answers, links and problem documents are written. PURE.

Each route of the dashboard is served as JSON below `API`. The form of an action is a struct there, with its types; a
page receives the same fields as texts, as a browser sends them. `redrive.web.openapi` describes all of it.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping
from http import HTTPStatus
from types import UnionType
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from redrive import errors
from redrive.errors import ConfigurationError, PayloadError, RedriveError, StoreBusy, StoreUnreachable
from redrive.web.exchange import Fault, Form, Page, Refusal, Request

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


def kinds() -> tuple[type[RedriveError], ...]:
    """Return the kinds of problems: the errors of redrive."""
    found = (getattr(errors, name) for name in errors.__all__)
    return tuple(each for each in found if issubclass(each, RedriveError))


def kind_of(name: str) -> type[RedriveError]:
    """Return a kind of problems by its name.

    Raises:
        Refusal: 404, there is none.
    """
    found = next((each for each in kinds() if each.__name__ == name), None)
    if found is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is no kind of problems {name!r}")
    return found


def title_of(kind: type[RedriveError]) -> str:
    """Return the first sentence about an error."""
    return (kind.__doc__ or kind.__name__).partition("\n")[0]


def status_of(kind: type[RedriveError]) -> HTTPStatus:
    """Return the status of the response to an error."""
    if issubclass(kind, LookupError):
        return HTTPStatus.NOT_FOUND
    if issubclass(kind, (ConfigurationError, PayloadError)):
        return HTTPStatus.BAD_REQUEST
    if issubclass(kind, (StoreBusy, StoreUnreachable)):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.CONFLICT


def refusal_of(error: RedriveError) -> Refusal:
    """Return the response to an error of redrive; its text is what the command line prints."""
    status, kind = status_of(type(error)), type(error).__name__
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        # The text of the error may name the host of the database.
        return Refusal(status, "the database does not answer; try again", {"Retry-After": "5"}, kind=kind)
    return Refusal(status, str(error), kind=kind if hasattr(errors, kind) else "")


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


def read_form(body: bytes, wanted: type[Form]) -> dict[str, str]:
    """Read the body of an action, and return the fields that it has, as a browser would send them.

    Raises:
        Refusal: 400, it is not JSON, or has a wrong or unknown member.
    """
    try:
        form = msgspec.json.decode(body or b"{}", type=wanted)
    except msgspec.DecodeError as error:
        text = re.sub(r"Expected `str` matching regex '[^']*'", "expected an id", str(error))
        what, _, path = text.partition(" - at ")
        fault = Fault(path.strip("`") or "$", what)
        detail = f"the body cannot be read: {text}; its members are {members(wanted)}"
        raise Refusal(HTTPStatus.BAD_REQUEST, detail, faults=[fault]) from error
    given = ((each, getattr(form, each.name)) for each in msgspec.structs.fields(wanted))
    return {each.encode_name: _text(value) for each, value in given if each.required or value != each.default}


def read_texts(body: bytes) -> dict[str, str]:
    """Read the body of an action with fields that are not known in advance, such as the arguments of a task.

    Raises:
        Refusal: 400, it is no JSON object with texts.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, str])
    except msgspec.DecodeError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}") from error


def members(wanted: type[Form]) -> str:
    """Write the members of a body, with the words that each may have."""
    return ", ".join(f"{each.encode_name}{_words(each.type)}" for each in msgspec.structs.fields(wanted))


def _words(kind: object) -> str:
    choices = [choice for choice in typing.get_args(kind) if isinstance(choice, str)]
    return f" ({', '.join(choices)})" if choices else ""


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return str(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def link_of(request: Request, page: Page) -> str | None:
    """Return the value of the ``Link`` header: the address of the next page of a list; None on the last page."""
    given = {name: value for name, value in page.next.items() if value is not None}
    if not given:
        return None
    return f'<{request.prefix}{quote(request.path)}?{urlencode({**request.query, **given})}>; rel="next"'


def parts_of(data: Any) -> tuple[type, ...]:  # noqa: ANN401 - a type, or a union of types
    """Return the structs that the answer of a route may be."""
    return typing.get_args(data) if isinstance(data, UnionType) else (data,)
