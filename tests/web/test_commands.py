"""The commands under pages do what the pages show."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
import typer

from redrive import App
from redrive.cli import cli
from redrive.engine.records import CONDITIONS, NO_CONDITIONS, Filter
from redrive.operate.filters import WORDS
from redrive.runtime.worker import Worker
from tests.cli.conftest import Output, redrive, shop
from tests.web.client import Operator

__all__ = ["redrive", "shop"]

QUEUE = "two words; $(reboot)"
BULK = ("list", "cancel", "redrive", "repolicy", "delete", "archive")


@pytest.fixture
def full(shop: App) -> App:
    """Return an App with jobs in several states, queues and error groups."""
    shop.open()
    charge = shop.tasks["charge"]
    for cents in (-1, -2, 13):
        charge.enqueue(cents)
    charge.options(queue=QUEUE, tags=["eu"]).enqueue(-3)
    charge.options(queue="-q").enqueue(-4)
    asyncio.run(Worker(shop, until_empty=True).run())
    charge.options(queue=QUEUE, delay="1h").enqueue(7)
    return shop


def commands(operator: Operator, path: str) -> list[str]:
    """Return the commands of a page."""
    return [html.unescape(each) for each in re.findall(r'class="command"><code>(.*?)</code>', operator.get(path).text)]


def _ids(output: Output) -> list[str]:
    assert output.status == 0, output.err
    return [str(json.loads(line)["id"]) for line in output.out.splitlines()]


FILTERS = [
    "",
    "state:dead",
    "state:dead task:charge",
    "state:dead caught:no",
    "caught:yes",
    "state:dead skipped:no",
    "skipped:yes",
    "hold:retry",
    "reason:GAVE_UP",
    'error:"no route"',
    "error:negative state:dead",
    "tag:eu",
    f'queue:"{QUEUE}"',
    "queue:-q",
    "id:1,3",
    "id:1,3 state:dead",
    "state:dead -error:negative",
    "args:-1 state:dead",
    "attempts:>=1 -queue:-q took:<1h",
    "key:none",
    "negative",
]


@pytest.mark.parametrize("q", FILTERS)
def test_a_list_is_what_its_command_prints(full: App, redrive: Callable[..., Output], q: str):
    """The command under a list of jobs prints the jobs of the page, with each of its filters."""
    operator = Operator(full)
    wanted = [each["id"] for each in operator.read(f"/jobs?{urlencode({'q': q, 'limit': 3})}")["items"]]
    (shown,) = commands(operator, f"/jobs?{urlencode({'q': q, 'limit': 3})}")

    assert wanted == _ids(redrive(*shlex.split(shown)[1:], "--json"))


def test_a_group_is_what_its_command_prints(full: App, redrive: Callable[..., Output]):
    """The filter by an error group is in the command, and the next page of a list too."""
    operator = Operator(full)
    group = operator.read("/jobs?q=id:1")["items"][0]["group"]
    for path in (f"/jobs?q=group:{group}+state:dead", "/jobs?before=4&limit=2"):
        (shown,) = commands(operator, path)
        wanted = [each["id"] for each in operator.read(path)["items"]]
        assert wanted == _ids(redrive(*shlex.split(shown)[1:], "--json"))


@pytest.mark.parametrize(
    "q", [each for each in FILTERS if ":" in each and "state:" not in each and "caught" not in each]
)
@pytest.mark.parametrize("action", ["redrive", "cancel", "repolicy"])
def test_a_preview_is_what_its_command_counts(full: App, redrive: Callable[..., Output], action: str, q: str):
    """The command under a preview changes as many jobs as the page shows, and only counts them."""
    operator = Operator(full)
    path = (
        f"/operations/preview?{urlencode({'action': action, 'q': q, 'rate': '' if action == 'repolicy' else '100/s'})}"
    )
    wanted = operator.read(path.replace("&rate=&", "&").removesuffix("&rate="))["changes"]["value"]
    (shown,) = commands(operator, path)
    words = shlex.split(shown)[1:]
    if "--rate" in words and action != "redrive":
        del words[words.index("--rate") : words.index("--rate") + 2]
    output = redrive(*words)

    assert "--dry-run" in words
    assert re.match(rf"{wanted} jobs? would be", output.out), output


def test_a_filter_with_a_mistake_has_no_command(full: App):
    """A filter that cannot be read lists no job, so that no command does either."""
    assert [] == commands(Operator(full), "/jobs?q=stat:dead")


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (
            "/runs?workflow=checkout&state=dead&hold=parked",
            "runs list {} --workflow checkout --state dead --hold parked",
        ),
        ("/errors?task=charge&dead=1", "errors list {} --task charge --dead"),
        (
            "/errors?before=2026-03-01T06:00:00%2B00:00/1-0&limit=2",
            "errors list {} --before 2026-03-01T06:00:00+00:00/1-0 --limit 2",
        ),
        ("/audit?before=7", "jobs audit {} --before 7"),
        ("/operations?before=7&limit=2", "operations list {} --before 7 --limit 2"),
    ],
)
def test_filters_of_other_lists_are_in_their_commands(full: App, path: str, options: str):
    """Each filter of a list is an option of its command."""
    assert [f"redrive {options.format('shop:app')}"] == commands(Operator(full), path)


def test_a_page_of_groups_is_what_its_command_prints(full: App, redrive: Callable[..., Output]):
    """The second page of the error groups is what its command prints, and the list names the place where it begins."""
    operator = Operator(full)
    first = operator.read("/errors?limit=1")
    path = f"/errors?{urlencode({'limit': 1, 'before': first['before']})}"
    (shown,) = commands(operator, path)
    second = redrive(*shlex.split(shown)[1:], "--json")

    assert [each["id"] for each in operator.read(path)["items"]] == [json.loads(second.out)["id"]]
    assert first["before"] in redrive("errors", "list", "shop:app", "--limit", "1").err
    assert "" == redrive("errors", "list", "shop:app").err


def test_a_place_that_no_list_has_named_is_refused(redrive: Callable[..., Output], full: App):
    """Another text than a place is a wrong use of the command."""
    output = redrive("errors", "list", "shop:app", "--before", "7")

    assert (2, True) == (output.status, "--before '7' is no place" in output.err)


def test_the_jobs_of_a_group_are_what_its_command_prints(full: App, redrive: Callable[..., Output]):
    """The page of a group has the commands of the group and of the jobs on the page."""
    operator = Operator(full)
    group = next(each for each in operator.read("/errors?dead=1")["items"] if each["dead"]["value"] > 1)["id"]
    first = operator.read(f"/errors/{group}?limit=1")
    path = f"/errors/{group}?limit=1&before={first['before']}"
    facts, shown = commands(operator, path)

    assert f"redrive errors show shop:app {group}" == facts
    assert [each["id"] for each in operator.read(path)["jobs"]] == _ids(redrive(*shlex.split(shown)[1:], "--json"))


def _options(name: str) -> set[str]:
    jobs: Any = typer.main.get_command(cli).commands["jobs"]  # type: ignore[attr-defined]
    return {each.name for each in jobs.commands[name].params}


@pytest.mark.parametrize("name", BULK)
def test_commands_on_jobs_have_all_conditions(name: str):
    """Each command on jobs takes a filter, and frequent conditions as options; the language has all conditions."""
    conditions = set(CONDITIONS) - {"ids"}
    all_of_them = {*Filter.__struct_fields__} - NO_CONDITIONS - {"ids", "finished_before"}

    assert conditions | {"words"} <= _options(name)
    assert all_of_them | {"id"} == set(WORDS)


@pytest.mark.parametrize(
    "words", ["--state dead --hold retry", "--state dead --not-caught 1", "--error negative 1 2 --tag eu"]
)
@pytest.mark.parametrize("name", ["redrive", "cancel", "repolicy", "delete", "archive"])
def test_ids_and_conditions_must_all_hold(full: App, redrive: Callable[..., Output], name: str, words: str):
    """A condition beside ids is not forgotten."""
    if name in {"cancel", "repolicy"} and "--state dead" in words:
        words = words.replace("--state dead", "--state ready --error negative")
    more = {"delete": ["--yes"], "archive": ["--to", "jobs.jsonl"]}.get(name, [])
    before = [(job.id, job.state) for job in full.jobs.select()]
    found = redrive("jobs", name, "shop:app", *shlex.split(words), *more)
    changed = {number for number, _ in set(before) - {(job.id, job.state) for job in full.jobs.select()}}

    assert found.status == 0, found.err
    assert changed == ({1} if "--not-caught 1" in words and name in {"redrive", "delete", "archive"} else set())
