"""Rows of the table of operators, asked of a desk: the database of an App here, or a dashboard behind ``--url``.

A command names its row by its words and gives it the values of its options, as the API names them. It gets the struct
of the row, whichever desk it asked, and prints it as JSON, or as lines of text by a function of `redrive.cli.text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from redrive.app.protocol import run
from redrive.cli.loading import load_app, load_existing
from redrive.cli.screen import print_document, say
from redrive.operate.exchange import MOST_ITEMS, Note, Payloads, Refusal, Request, Role, Site, User
from redrive.operate.forms import as_text
from redrive.operate.problems import error_of

# The table with its views, and the client of HTTP, are imported by a command that asks for something; help does not.
if TYPE_CHECKING:
    from redrive.cli.remote import Server

# Items that a list of a database here returns at once, if the caller asks for as many.
_MOST: Final = 10**9

Desk: TypeAlias = "str | Server"
"""What the argument ``MODULE:APP`` of a command names; a server in its place with ``--url``."""


def is_server(app: Desk) -> TypeGuard[Server]:
    """Return True if a command asks a server, and has no App."""
    return not isinstance(app, str)


def ask(app: Desk, words: str, *, actor: str | None = None, **given: Any) -> Any:  # noqa: ANN401 - of the row
    """Return the struct of the row of a command; of an action it is a `Note`.

    Args:
        app: the argument of the command.
        words: of the command, such as ``jobs list``.
        actor: the name in the audit log, where the caller may choose it.
        given: the values of the options, by the names of the API; None and ``UNSET`` are not given.
    """
    return perform(app, words, given, actor=actor)


def perform(app: Desk, words: str, given: Mapping[str, Any], *, actor: str | None, dry_run: bool = False) -> Any:  # noqa: ANN401 - as `ask`
    """Perform a row, or have an action checked that a desk checks without doing it; see `ask`."""
    from redrive.operate.table import call

    if not isinstance(app, str):
        return app.perform(call(words, {**given} | ({} if actor is None else {"actor": actor})), dry_run=dry_run)
    asked = call(words, given)
    is_action = asked.row.form is not None
    # The first job makes the database, and queues and schedules are also set before it.
    creates = is_action and words.startswith(("enqueue", "queues", "schedules"))
    loaded = (load_app if creates else load_existing)(app)
    site = Site(loaded, payloads=Payloads.SHOW, reference=loaded.reference)
    request = Request(
        asked.row.method,
        asked.path,
        User(actor or loaded.default_actor, Role.OPERATE),
        query={} if is_action else asked.query,
        form={name: as_text(value) for name, value in asked.values.items()} if is_action else {},
        places=asked.places,
        dry_run=dry_run,
        most=_MOST,
        via="",
    )
    try:
        answer = run(loaded.store, asked.row.procedure(site, request))
    except Refusal as refusal:
        raise error_of(refusal.status, refusal.detail, refusal.kind) from refusal
    return Note(answer.note) if answer.data is None else answer.data


def show(app: Desk, words: str, render: Callable[[Any], None], *, json: bool, **given: Any) -> Any:  # noqa: ANN401 - as `ask`
    """Print the view of a command as JSON, an item of a list in each line, or as text; return it."""
    view = ask(app, words, **given)
    present(view, words, render, json=json, **given)
    return view


def present(view: Any, words: str, render: Callable[[Any], None], *, json: bool, **given: Any) -> None:  # noqa: ANN401 - as `ask`
    """Print the view of a command; a list as JSON has an item in each line."""
    from redrive.operate.table import call

    asked = call(words, given)
    if not json:
        render(view)
    elif asked.row.items and not asked.is_document:
        for each in getattr(view, asked.row.items):
            print_document(each)
    else:
        print_document(view)


def act(app: Desk, words: str, *, actor: str | None = None, **given: object) -> None:
    """Carry out the action of a command, and print what it did."""
    say(ask(app, words, actor=actor, **given).note)


def check(app: Desk, demand: Callable[..., object], *args: object, creates: bool = False, **given: object) -> None:
    """Check names by the App, which a command may be allowed to create the database of; a server checks them itself."""
    if isinstance(app, str):
        demand((load_app if creates else load_existing)(app), *args, **given)


def most(app: Desk) -> int:
    """Return the largest number of items that a desk lists at once."""
    return MOST_ITEMS if is_server(app) else _MOST


def name_of(app: Desk) -> str:
    """Return the name of an App in the commands that a text recommends."""
    return app if isinstance(app, str) else "APP"
