"""A kind of problems: the page to which the ``type`` of a problem document leads."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

import msgspec

from redrive.errors import RedriveError
from redrive.web import api
from redrive.web.exchange import Page, Request, Site


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
    kind = api.kind_of(request.places["name"])
    parents = tuple(each.__name__ for each in kind.__mro__[1:] if issubclass(each, RedriveError))
    data = ProblemType(kind.__name__, api.status_of(kind).value, inspect.getdoc(kind) or "", parents)
    return Page(kind.__name__, data)
    yield  # a page is a generator, and this one reads nothing
