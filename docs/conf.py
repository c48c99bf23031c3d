"""How Sphinx builds this documentation: `make docs`. Warnings are errors and references are nit-picked (-W -n)."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import generate

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "redrive"
author = "The redrive authors"
copyright = "the redrive authors"
release = installed_version("redrive")
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "adr/template.md"]
nitpicky = True
default_role = "code"

# Modules: the essay at the top, then the members in the order in which they were written to be read.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The standard library's pages are on another host and no build may need the network, so its names are not linked.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(collections|concurrent|contextlib|dataclasses|datetime|enum|random|threading|types|typing|wsgiref|zoneinfo|_?asyncio|sqlite3)\..*",
    ),
    (r"py:.*", r"(date|datetime|timedelta|tzinfo|UTC|Path|Any|Callable|Iterable|Iterator|Mapping|Sequence|Self)"),
    # The last one: Sphinx cuts nested generics at the comma.
    (r"py:.*", r"EllipsisType|msgspec\.(Struct|UnsetType)|tuple\[(str|~redrive\.stores\.query\.Query)"),
    (r"py:.*", r"(couchbase\.exceptions\.)?CouchbaseException"),  # the SDK's pages are on another host too
    (r"py:.*", r"redis\.(asyncio\.)?client\.Redis|grpc\..*"),  # and those of redis-py and gRPC
    (r"py:.*", r"prometheus_client\..*|(opentelemetry\..*\.)?(Tracer|Meter)Provider"),  # and theirs
    (r"py:.*", r"(redrive\..*\.)?(_\w+|~?[A-Z])"),  # type variables, which have no page
    (r"py:.*", r"Decision|Duration|Mode|On"),  # aliases: where they appear, the text says what they take
    (
        r"py:.*",
        r"(redrive\.retrying\.decorator\.)?(Decorator|Fields)|SQLiteStore|redrive\.policy\.decider\.Decider",
    ),  # not for users
    (r"py:.*", r"(django|django_tasks|fastapi|starlette)\..*|CommandError|TaskResultDoesNotExist"),  # elsewhere
    (r"py:.*", r"redrive\.contrib\.django\.(home\.DjangoApp|orm\.AtomicEnd)"),  # what they answer is described there
    (r"py:.*", r"httpx\.\w+|KeyOption"),  # httpx's pages are on another host; an alias that the text explains
    (r"py:.*", r"(asyncpg|psycopg|sqlalchemy)\..*"),  # nor are the pages of these here
    (r"py:.*", r"redrive\.stores\.(transaction\.\w+|drivers\..*)"),
    # Nor are these.
    (r"py:.*", r"redrive\.app\.(protocol\.AppProtocol|attempt_handle\.AttemptHandle|payload\.Signature)"),
    (r"py:.*", r"redrive\.contrib\.django\.app\.DjangoApp"),
    (r"py:.*", r"redrive\.app\.(registration|enqueue|schedules)\.\w+"),
]

myst_enable_extensions = ["substitution"]
myst_heading_anchors = 3
myst_substitutions = {"lifecycle": generate.lifecycle(), **generate.commands()}

html_theme = "furo"
html_title = "redrive"
html_static_path = ["_static"]
html_css_files = ["redrive.css"]
html_show_sourcelink = False
html_copy_source = False

_attribute_docs: dict[str, list[str]] = {}


def _set_aside(*event: Any) -> None:  # noqa: ANN401 - six things, of which three are wanted
    _, what, name, _, _, lines = event
    if what in {"attribute", "data", "property"}:
        _attribute_docs[name] = list(lines)


def _put_back(*event: Any) -> None:  # noqa: ANN401 - the same
    _, _, name, _, _, lines = event
    if name in _attribute_docs:
        lines[:] = _attribute_docs.pop(name)


def setup(app: Sphinx) -> None:
    """Keep napoleon (priority 500) away from attributes: it reads "Gave up: no retries left" as a type "Gave up"."""
    app.connect("autodoc-process-docstring", _set_aside, priority=400)
    app.connect("autodoc-process-docstring", _put_back, priority=600)
