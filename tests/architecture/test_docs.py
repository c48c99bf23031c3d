"""Errors, commands and settings without documentation fail a test, as in Datasette."""

from __future__ import annotations

import inspect
import re
import runpy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from docs.generate import commands
from redrive import App, errors
from redrive.cli import cli
from redrive.operate import navigation
from redrive.operate.table import ROWS
from redrive.stores.drivers.postgres import PostgresSettings
from redrive.stores.drivers.sqlite import SQLiteSettings
from tests.architecture.source import DOCS, ROOT, headings, markdown, name

if TYPE_CHECKING:
    from pathlib import Path

UNSET = {"path", "dsn", "name", "servers"}
"""Fields of the settings of a database that are no settings of its URL."""

LARGEST = 2_000_000
"""Bytes of all pictures of the dashboard."""


@pytest.mark.parametrize("error", errors.__all__)
def test_each_error_is_documented(error: str):
    """Exceptions have headings in the reference, with advice on what to do."""
    assert error in headings(DOCS / "reference" / "errors.md")


@pytest.mark.parametrize("command", commands())
def test_each_command_is_documented(command: str):
    """Each command has a heading in the reference, and below it the usage that is generated from the command."""
    page = DOCS / "reference" / "cli.md"

    assert command.replace("_", " ") in headings(page)
    assert f"{{{{ {command} }}}}" in page.read_text()


@pytest.mark.parametrize("setting", inspect.signature(App).parameters)
def test_each_setting_of_an_app_is_documented(setting: str):
    """Each argument of an App has a heading in the reference."""
    assert setting in headings(DOCS / "reference" / "settings.md")


@pytest.mark.parametrize(
    "setting",
    [each.name for kind in (SQLiteSettings, PostgresSettings) for each in fields(kind) if each.name not in UNSET],
)
def test_each_setting_of_a_database_is_documented(setting: str):
    """Each query parameter of a database URL has a heading in the reference."""
    assert setting in headings(DOCS / "reference" / "stores.md")


def test_no_example_is_skipped_silently():
    """No page has a pycon fence, since Sybil would not run the session in it."""
    fences = [
        name(page) for page in markdown() if re.search(r"^\s*[`~]{3,}\s*\{?pycon", page.read_text(), re.MULTILINE)
    ]

    assert [] == fences


def test_each_fence_names_its_language():
    """Code fences name their language, because an anonymous Python example would not be tested."""
    anonymous = [name(page) for page in markdown() if any(not language for language in _languages(page.read_text()))]

    assert [] == anonymous


def test_the_readme_shows_the_present_drawing(tmp_path: Path):
    """Compare the picture of the README with the present output of the command above it.

    To replace the picture, run that command in the checkout with ``--svg docs/plan.svg``.
    """
    (policy,) = re.findall(r'^\$ redrive plan "(.*?)"', (ROOT / "README.md").read_text(), re.MULTILINE)

    CliRunner().invoke(cli, ["plan", policy, "--svg", str(tmp_path / "plan.svg")])

    assert (DOCS / "plan.svg").read_text() == (tmp_path / "plan.svg").read_text()


def test_the_architecture_names_files_that_exist():
    """Each path on the page about the architecture leads to a file or a folder."""
    text = (DOCS / "explanation" / "architecture.md").read_text()
    paths = set(re.findall(r"`((?:src|redrive|tests|stores|runtime|policy)/[\w/.]+)`", text))

    assert [] == [
        path for path in sorted(paths) if not any((ROOT / base / path).exists() for base in ("", "src", "src/redrive"))
    ]


def test_tests_that_pages_name_exist():
    """Each ``file::test`` on a page is a test function; the page about failures names one in each row of its tables."""
    named = {
        found: name(page) for page in markdown() for found in re.findall(r"`(tests/[\w/]+\.py::\w+)`", page.read_text())
    }
    rows = re.findall(r"^\| (?!what happens|---)(.*) \|$", _failures().read_text(), re.MULTILINE)

    assert {} == {found: page for found, page in named.items() if not _is_test(found)}
    assert len(named) >= len(rows) - 1
    assert [] == [row for row in rows if "::test_" not in row]


def _failures() -> Path:
    return DOCS / "explanation" / "what-happens-when.md"


def _is_test(found: str) -> bool:
    path, _, function = found.partition("::")
    return (ROOT / path).exists() and f"def {function}(" in (ROOT / path).read_text()


def test_the_tour_shows_the_dashboard():
    """Each entry of the navigation has a light and a dark picture, all pictures are shown, and take less than 2 MB."""
    pictures = {path.name: path.stat().st_size for path in (DOCS / "screenshots").iterdir()}
    entries = {each.path for _, group in navigation.groups(ROWS) for each in group}
    pages = {route.template.removesuffix(".html") for route in ROWS if route.template and route.path in entries}
    shown = re.findall(r"{{ picture_(\w+) }}", (DOCS / "how-to" / "tour.md").read_text())

    assert set() == pages - set(shown)
    assert {f"{page}-{scheme}.webp" for page in shown for scheme in ("light", "dark")} == pictures.keys()
    assert sum(pictures.values()) < LARGEST


def test_each_page_is_in_the_index():
    """Each folder of the documentation has an index that lists its pages."""
    folders = {page.parent for page in DOCS.rglob("*.md") if "_build" not in page.parts}

    assert [] == [name(folder) for folder in folders if not (folder / "index.md").exists()]


def test_the_documentation_can_be_read():
    """It has at most 60,000 words, the reference and the records of decisions not counted."""
    assert runpy.run_path(str(DOCS / "words.py"))["by_folder"]().total() <= 60_000


# What new users asked, and did not find in a minute: a part of each question.
ASKED = (
    "invoice", "one workflow from another", "body of a workflow", "effect", "on a file", "old code", "failed run",
    "backoff with jitter", "client, the function or the job", "loss of the database", "several machines", "a job cost",
    "jitter", "time of a job", "time of a call", "priority", "How large", "stop a worker", "How many jobs", "log",
    "metrics", "dead events", "send a request",
)  # fmt: skip


def test_each_question_leads_to_its_answer():
    """The first page names the page of questions, and each of them has a link to a heading that exists."""
    page = (DOCS / "questions.md").read_text()
    rows = re.findall(r"^\| ([A-Z].*\?) \| \[(.*)\]\(([\w/-]+\.md)(?:#([\w-]+))?\) \|$", page, re.MULTILINE)

    assert "{doc}`questions`" in (DOCS / "index.md").read_text()
    assert len(rows) == page.count("\n| ") - len(["the head", "the line"])
    assert [] == [word for word in ASKED if not any(word in question for question, *_ in rows)]
    for _, heading, target, anchor in rows:
        headings = re.findall(r"^#{1,3} (.*)$", (DOCS / target).read_text(), re.MULTILINE)
        assert heading in (headings if anchor else headings[:1])


def test_decisions_have_all_their_sections():
    """Each decision record has a status, a context, a decision, consequences and alternatives with reasons."""
    needed = {"Status", "Context", "Decision", "Consequences", "Alternatives considered"}
    records = [*(DOCS / "adr").glob("0*.md"), DOCS / "adr" / "template.md"]

    assert {} == {name(record): needed - headings(record) for record in records if needed - headings(record)}


def _languages(text: str) -> list[str]:
    """Return the languages of the opening fences of a page."""
    marks = re.findall(r"^\s*```(.*)$", text, re.MULTILINE)
    return [mark.strip() for mark in marks[::2]]


def test_commands_on_pages_exist():
    """Each command on a page is a command of redrive, with options that it has."""
    group = get_command(cli)
    shown = {
        line: name(page)
        for page in markdown()
        for line in re.findall(r"(?:^\s*\$ |`)(redrive [a-z][^`\n|#>]*)", page.read_text(), re.MULTILINE)
    }
    wrong = {f"{page}: {line}": found for line, page in shown.items() if (found := _not_accepted(group, line))}

    assert {} == wrong
    assert len(shown) > len(commands())


def _not_accepted(command: Any, line: str) -> list[str]:
    """Return the words of a command line that are neither a command nor an option of it."""
    words = line.split()[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if getattr(command, "commands", {}) and words and not words[0].startswith("-"):
        return words[:1]
    known = {"--help", "--version", "--install-completion"} | {
        each for one in command.params for each in (*one.opts, *one.secondary_opts)
    }
    return [each for each in words if re.fullmatch(r"--[a-z-]+", each) and each not in known]
