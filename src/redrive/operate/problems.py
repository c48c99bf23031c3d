"""The kinds of problems: the errors of redrive as refusals, and the page to which a problem document leads."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from http import HTTPStatus
from typing import Any

import msgspec

from redrive import errors
from redrive.errors import ConfigurationError, PayloadError, RedriveError, StoreBusy, StoreUnreachable
from redrive.operate.exchange import Page, Refusal, Request, Site


class ProblemType(msgspec.Struct, frozen=True, gc=False):
    """A kind of problems: an error of redrive.

    Attributes:
        name: the class of the error in `redrive.errors`.
        status: of the responses that report it.
        text: what it means.
        kinds: the classes of errors to which it belongs, the nearest first.
    """

    name: str
    status: int
    text: str
    kinds: tuple[str, ...]


def problem_type(_: Site, request: Request) -> Generator[Any, Any, Page]:
    """Show what a kind of problems means."""
    kind = kind_of(request.places["name"])
    parents = tuple(each.__name__ for each in kind.__mro__[1:] if issubclass(each, RedriveError))
    data = ProblemType(kind.__name__, status_of(kind).value, inspect.getdoc(kind) or "", parents)
    return Page(kind.__name__, data)
    yield  # a page is a generator, and this one reads nothing


def kinds() -> tuple[type[RedriveError], ...]:
    """Return the kinds of problems: the errors of redrive."""
    found = (getattr(errors, name) for name in dir(errors))
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
        is_standby = "is read only" in str(error)
        text = (
            "the database is read only: is it a standby?" if is_standby else "the database does not answer; try again"
        )
        return Refusal(status, text, {"Retry-After": "5"}, kind=kind)
    return Refusal(status, str(error), kind=kind if hasattr(errors, kind) else "")


def error_of(status: int, detail: str, kind: str) -> RedriveError:
    """Return the error of which a refusal or a problem document is the response."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, RedriveError):
        return found(detail)
    return (ConfigurationError if status == HTTPStatus.BAD_REQUEST else RedriveError)(detail)
