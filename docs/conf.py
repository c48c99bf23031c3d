"""The Sphinx configuration of this documentation (`make docs`). Warnings and unknown references are errors (-W -n)."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import generate

import redrive.engine.outcome
from redrive.engine.error_groups import ErrorSeen

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Imported there for the type checker only: a worker loads it with the first failure.
redrive.engine.outcome.ErrorSeen = ErrorSeen  # type: ignore[attr-defined]

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

# Members stand in the order of the source, which is the order of reading.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # the code has annotations, and the search parses the source of each function
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Names without a page here. Pages of other projects are on other hosts, and a build must not need the network.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(abc|collections|concurrent|contextlib|contextvars|dataclasses|datetime|enum|pathlib|random|threading|types|typing|wsgiref|zoneinfo|_?asyncio|sqlite3)\..*",
    ),
    (r"py:.*", r"(date|datetime|timedelta|tzinfo|UTC|Path|Any|Callable|Iterable|Iterator|Mapping|Sequence|Self)"),
    # Sphinx cuts nested generics at the comma.
    (r"py:.*", r"EllipsisType|msgspec\.(Struct|UnsetType)|tuple\[(str|~redrive\.stores\.query\.Query)"),
    (r"py:.*", r"(couchbase\.exceptions\.)?CouchbaseException"),
    # Constructor arguments of topics and subscriptions, which the decorators make.
    (
        r"py:.*",
        r"redrive\.app\.(attempts\.origins\.Delivery|topics\.(subscription\.TopicReader|topic\.(Registrar|Retention)))",
    ),
    (r"py:.*", r"msgspec\.Raw"),
    (r"py:.*", r"redrive\.(engine\.topics\.TopicEvent|.*\.SubscriptionDefinition)"),
    (r"py:.*", r"redrive\.(engine\.(outcome\.Settlement|search\.Bounds)|app\.flows\.flow\.FlowBase)"),
    (r"py:.*", r"redis\.(asyncio\.)?client\.Redis|grpc\..*"),
    (r"py:.*", r"prometheus_client\..*|(opentelemetry\..*\.)?(Tracer|Meter)Provider"),
    (r"py:.*", r"(redrive\..*\.)?(_\w+|~?[A-Z])"),  # type variables
    (r"py:.*", r"Decision|Duration|Mode|On"),  # aliases that the text explains
    (
        r"py:.*",
        r"(redrive\.retrying\.decorator\.)?(Decorator|Fields)|SQLiteStore|redrive\.policy\.decider\.Decider",
    ),  # internal types
    (r"py:.*", r"(django|django_tasks|fastapi|starlette)\..*|CommandError|TaskResultDoesNotExist"),
    # Sphinx does not look up the short names in signatures of functions that `redrive.seams.spelled` wraps.
    (r"py:.*", r"(decorators\.)?(ContextInside|AnyArgument|TaskDecorator|Executor|Archive|Codec|Erased)"),
    # Internal types.
    (r"py:.*", r"redrive\.engine\.error_groups\.ErrorSeen"),
    (r"py:.*", r"redrive\.contrib\.django\.orm\.AtomicTransaction|redrive\.schedule\.options\.PolicyFields"),
    (r"py:.*", r"httpx2?\.\w+|KeyOption"),  # and an alias that the text explains
    (r"py:.*", r"redrive\.contrib\.transports\.transport\.\w+T"),  # type variables
    (r"py:.*", r"(aiohttp|asyncpg|celery|dramatiq|psycopg|requests|sqlalchemy|temporalio)\..*"),
    (r"py:.*", r"Model|EventStreamHandler|AgentDepsT"),  # of Pydantic AI
    (r"py:.*", r"redrive\.stores\.(transaction\.\w+|drivers\..*)"),
    # Internal types of signatures.
    (r"py:.*", r"redrive\.app\.(protocol\.AppProtocol|attempts\.handle\.AttemptHandle|payload\.Signature)"),
    (r"py:.*", r"redrive\.app\.attempts\.effects\.Effects"),
    (r"py:.*", r"redrive\.contrib\.django\.app\.DjangoApp"),
    (
        r"py:.*",
        r"redrive\.app\.flows\.(flow\.FlowBase|flow_call\.ConductorProtocol|calls\.\w+|rng\.FlowRandom)|uuid\.UUID",
    ),
    (r"py:.*", r"AppProtocol|Registrar|Options|Traits|StateDeclaration|MachineProtocol"),
    (r"py:.*", r"redrive\.app\.(attempts\.origins\.\w+|machines\.(machine\.MachineRegistrar|state\.StateDeclaration))"),
    (
        r"py:.*",
        r"redrive\.app\.((decorators|registry|tasks\.enqueue|recurring\.schedules)\.\w+|tasks\.task\.Traits)|Interrupted",
    ),
]

myst_enable_extensions = ["substitution"]
myst_heading_anchors = 3
myst_substitutions = {
    "lifecycle": generate.lifecycle(),
    "timeline": generate.timeline(),
    "remote_commands": generate.remote_commands(),
    **generate.commands(),
    **generate.pictures(),
}

html_theme = "furo"
html_title = "redrive"
html_static_path = ["_static"]
html_css_files = ["redrive.css"]
html_show_sourcelink = False
html_copy_source = False


def _insert_http_api(_: Sphinx, page: str, source: list[str]) -> None:
    # A substitution cannot have headings.
    if page == "reference/http-api":
        source[0] = source[0].replace("<!-- the reference -->", generate.http_api())


_attribute_docs: dict[str, list[str]] = {}


def _keep_lines(*event: Any) -> None:  # noqa: ANN401 - six arguments, of which three are used
    _, what, name, _, _, lines = event
    if what in {"attribute", "data", "property"}:
        _attribute_docs[name] = list(lines)


def _restore_lines(*event: Any) -> None:  # noqa: ANN401 - the same
    _, _, name, _, _, lines = event
    if name in _attribute_docs:
        lines[:] = _attribute_docs.pop(name)


def _skip_procedures(_app: Sphinx, _what: str, _name: str, member: object, skip: bool, _options: object) -> bool:  # noqa: FBT001
    """Leave out what both forms of a method run: it is for the desk, which yields it."""
    returns = getattr(member, "__annotations__", {}).get("return", "")
    return skip or str(returns).startswith(("Procedure[", "Operation["))


def setup(app: Sphinx) -> None:
    """Hide attributes from napoleon (priority 500), which reads "Gave up: no retries left" as a type "Gave up"."""
    app.connect("source-read", _insert_http_api)
    app.connect("autodoc-skip-member", _skip_procedures)
    app.connect("autodoc-process-docstring", _keep_lines, priority=400)
    app.connect("autodoc-process-docstring", _restore_lines, priority=600)
