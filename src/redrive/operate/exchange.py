"""Requests and responses of the dashboard, as frozen values. PURE.

A page is a generator: it receives the site and a request, yields store operations and blocking calls of the App
(`redrive.app.protocol.Procedure`), and returns a `Page` or a `Moved`. So a page is tested without a server. The data of
a page is a struct, from which the template makes HTML and the JSON API makes JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from redrive.app.app import App
from redrive.app.protocol import Procedure
from redrive.operate.shared import Shared

#: The largest id that a database holds.
LARGEST_ID = 2**63 - 1

#: The longest text of a parameter, in characters.
LONGEST = 2000

#: The largest number of items that a list returns at once.
MOST_ITEMS = 200

#: The id of a row: a number of 64 bits as a text, because many readers of JSON keep 53 bits of a number only.
Id: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]


Choice = TypeVar("Choice", bound=StrEnum)


class Role(StrEnum):
    """The rights of a user. `OPERATE` includes `READ`."""

    READ = "read"
    OPERATE = "operate"


class Payloads(StrEnum):
    """How much of arguments, results and progress a site shows."""

    SHOW = "show"
    """All of it."""
    REDACTED = "redacted"
    """Values under keys that look secret, such as ``password``, are replaced."""
    HIDDEN = "hidden"
    """None of it."""


class User(msgspec.Struct, frozen=True, gc=False):
    """The sender of a request.

    Attributes:
        name: for the header of the page and for the audit log.
        role: what the user may do.
    """

    name: str
    role: Role = Role.READ

    @property
    def may_operate(self) -> bool:
        """True if the user may change something."""
        return self.role is Role.OPERATE


class Newest(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a list from the newest item on.

    Attributes:
        before: where the page begins: the member of this name of the page before it.
        limit: of the items of a page, from 1 to 200.
    """

    before: Id | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] | None = None


class Named(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a list by name.

    Attributes:
        after: where the page begins: the member of this name of the page before it.
        limit: of the items of a page, from 1 to 200.
    """

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] | None = None


class Form(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The body of an action of the JSON API. A form of a page has the same fields, as texts."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request after authentication.

    Attributes:
        method: ``GET`` or ``POST``.
        path: the path below the place where the dashboard is mounted.
        user: the sender.
        prefix: the place where the dashboard is mounted: empty, or a path such as ``/ops/redrive``.
        query: the parameters of the URL; the last value of each.
        form: the fields of the form or of the JSON object in the body.
        places: the variable parts of the path, by name.
        dry_run: True for an action that is checked, and not done.
        most: the largest number of items that a list returns at once.
        via: how the sender acts, for the audit log; empty on the command line.
    """

    method: str
    path: str
    user: User
    prefix: str = ""
    query: Mapping[str, str] = {}
    form: Mapping[str, str] = {}
    places: Mapping[str, str] = {}
    dry_run: bool = False
    most: int = MOST_ITEMS
    via: str = "web"

    @property
    def actor(self) -> str:
        """The name in the audit log."""
        return f"{self.user.name} via {self.via}" if self.via else self.user.name

    @property
    def id(self) -> int:
        """The id in the path.

        Raises:
            Refusal: 404, it is not a number, or no id is as large.
        """
        number = whole_number(self.places["id"], most=LARGEST_ID)
        if number is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"there is no number {self.places['id'][:40]!r}")
        return number

    def number(self, name: str, default: int, *, most: int, least: int = 0) -> int:
        """Return a whole number of the URL.

        Raises:
            Refusal: it is not a number, or not between ``least`` and ``most``.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        number = whole_number(text, least=least, most=most)
        if number is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name}={text[:40]!r} is not a whole number from {least} to {most}")
        return number

    def limit(self, default: int) -> int:
        """Return the number of items of a page.

        Raises:
            Refusal: it is not a number from 1 to 200.
        """
        return self.number("limit", default, most=self.most, least=1)

    def member(self, name: str, what: str, *, least: int = 0) -> int | None:
        """Return a whole number of the form; None if it is missing or empty.

        Raises:
            Refusal: it is none, or is below ``least``.
        """
        text = self.form.get(name, "").strip()
        number = whole_number(text, least=least, most=LARGEST_ID)
        if text and number is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name}={text[:40]!r} is not {what}")
        return number

    def text(self, name: str) -> str | None:
        """Return a text of the URL; None if it is missing or empty.

        Raises:
            Refusal: it is too long.
        """
        found = self.query.get(name, "").strip()
        if len(found) > LONGEST:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name} has at most {LONGEST} characters")
        return found or None

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """Return a member of an enumeration from the URL; None if it is missing or empty.

        Raises:
            Refusal: there is no such member.
        """
        text = self.query.get(name, "")
        try:
            return kind(text) if text else None
        except ValueError:
            known = ", ".join(each.value for each in kind)
            raise Refusal(HTTPStatus.BAD_REQUEST, f"{name}={text[:40]!r} is not one of {known}") from None

    def action(
        self, allowed: Collection[str], what: str, *, more: str = "", status: HTTPStatus = HTTPStatus.CONFLICT
    ) -> str:
        """Return the action of the form.

        Args:
            allowed: the actions that are possible now.
            what: the object of the action, with its state.
            more: why another action is not possible.
            status: of the refusal: 400 for an action that is possible in no state.

        Raises:
            Refusal: the action is not possible.
        """
        action = self.form.get("action", "")
        # The command line shows no buttons, and prints the error of the operation itself, which names the reason.
        if self.via and action not in allowed:
            detail = f"{what}: {action[:40]!r} is not possible, but {', '.join(allowed) or 'none'}"
            raise Refusal(status, detail + (f"; {more}" if more else ""))
        return action

    def demand_state(self, what: str, now: str) -> None:
        """Check that the page of a form showed the present state; a form without a state is not checked.

        Raises:
            Refusal: 409, it showed another one.
        """
        seen = self.form.get("state")
        if seen and seen != now:
            raise Refusal(HTTPStatus.CONFLICT, f"{what} is {now} now, not {seen}: look at it again")


def path_to(*parts: str) -> str:
    """Return the path of a page, below the place where the dashboard is mounted."""
    return "".join(f"/{quote(each, safe='')}" for each in parts)


def whole_number(text: str, *, least: int = 0, most: int) -> int | None:
    """Return a number that is written in decimal digits; None for another text, or if it is out of its bounds."""
    # Python reads other digits too, refuses more than 4,300, and would read a long text of zeros.
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LARGEST_ID)):
        return None
    number = int(text)
    return number if least <= number <= most else None


def instant(text: str) -> datetime | None:
    """Return an instant with an offset, in UTC; None for another text, or if UTC does not have it."""
    try:
        # A plus sign that is not escaped in a URL is a space.
        found = datetime.fromisoformat(text.replace(" ", "+"))
        return None if found.utcoffset() is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_instant(name: str, text: str) -> datetime:
    """Return the instant of a parameter or of a member of a body.

    Raises:
        Refusal: it is none, or has no offset.
    """
    found = instant(text)
    if found is None:
        detail = f"{name}={text[:40]!r} is not an instant with an offset, such as 2026-03-01T06:00Z"
        raise Refusal(HTTPStatus.BAD_REQUEST, detail)
    return found


class Fault(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A wrong part of a request.

    Attributes:
        path: of the part: a parameter such as ``q``, or a member of the body such as ``$.action``.
        message: what is wrong with it.
        caret: the text, and a caret below its wrong place, on two lines.
    """

    path: str
    message: str
    caret: str | None = None


class Refusal(Exception):
    """A request that is not served.

    Attributes:
        status: of the response.
        detail: what was wrong, and what would be right.
        headers: of the response.
        kind: the name of the error of redrive that it reports; empty if the status is the whole answer.
        faults: the wrong parts of the request.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        kind: str = "",
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers: dict[str, str] = dict(headers or {})
        self.kind = kind
        self.faults: tuple[Fault, ...] = tuple(faults)


class Page(msgspec.Struct, frozen=True, gc=False):
    """The answer to a question.

    Attributes:
        title: for the tab of the browser; it begins with the main number.
        data: what the template and the JSON API show.
        refusal: why the page answers nothing, although it is shown; the JSON API returns this instead of the data.
        next: the parameters of the next page of a list; None for one that has no next page.
        elsewhere: the page of a browser that shows it with actions; None for its own.
    """

    title: str
    data: msgspec.Struct
    refusal: Refusal | None = None
    next: Mapping[str, str | None] = {}
    elsewhere: str | None = None

    @property
    def status(self) -> HTTPStatus:
        """The status of the response."""
        return HTTPStatus.OK if self.refusal is None else self.refusal.status


class Note(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What an action did.

    Attributes:
        note: as a sentence.
        dry_run: True if it would be done, but was only checked.
    """

    note: str
    dry_run: bool = False


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The answer to an action: a message, and the page to show next.

    Attributes:
        to: path below the place where the dashboard is mounted.
        note: what was done.
        status: of the answer of the JSON API, which leads to the page with 201 and 202: it was made, or goes on.
        data: that answer; None for a `Note`.
    """

    to: str
    note: str
    status: HTTPStatus = HTTPStatus.OK
    data: msgspec.Struct | None = None


class Dev(msgspec.Struct, frozen=True, gc=False):
    """What only the site of `redrive dev` can do.

    Attributes:
        advance: advances the clock by a span, and returns when the worker works again; None without ``--memory``.
    """

    advance: Callable[[timedelta], None] | None = None


class Site(msgspec.Struct, frozen=True, gc=False):
    """The settings of a dashboard.

    Attributes:
        app: the App.
        title: name of the instance in the header, such as ``production``.
        payloads: how much of arguments and results is shown.
        open_to_all: True if there is no authentication; each page then warns of it.
        reference: the App in commands that pages recommend, such as ``payments.jobs:app``.
        dev: for the site of `redrive dev`; None for any other.
        name: of the App, where the dashboards of several Apps are served; otherwise empty.
        apps: the names of all of them.
        shared: the figures that its viewers share.
    """

    app: App
    title: str = ""
    payloads: Payloads = Payloads.REDACTED
    open_to_all: bool = False
    reference: str = "APP"
    dev: Dev | None = None
    name: str = ""
    apps: tuple[str, ...] = ()
    shared: Shared = msgspec.field(default_factory=Shared)


Answer: TypeAlias = Page | Moved
Handler: TypeAlias = Callable[[Site, Request], Procedure[Answer]]
