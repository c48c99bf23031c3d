"""The commands that screens, findings and errors recommend."""

from __future__ import annotations

import shlex

import pytest

from redrive.engine.commands import command, of_jobs
from redrive.engine.lifecycle import State
from redrive.engine.records import Filter, Hold


@pytest.mark.parametrize(
    ("places", "options", "expected"),
    [
        (("shop:app",), {}, "redrive jobs list shop:app"),
        (("shop:app", "a b"), {"queue": "it's"}, """redrive jobs list shop:app 'a b' --queue 'it'"'"'s'"""),
        (("shop:app",), {"queue": "$(touch${IFS}x)"}, "redrive jobs list shop:app --queue '$(touch${IFS}x)'"),
        (("shop:app", "-x"), {"queue": "-q"}, "redrive jobs list --queue -q -- shop:app -x"),
        (
            ("shop:app",),
            {"dry_run": True, "dead": False, "task": None, "tag": ""},
            "redrive jobs list shop:app --dry-run",
        ),
    ],
)
def test_names_are_words(places: tuple[str, ...], options: dict[str, str | bool | None], expected: str):
    """A name is one word without an effect in a shell, and no option."""
    assert expected == command("jobs list", *places, **options)


@pytest.mark.parametrize("name", ["`id`", "a\nb", "\\", '"', "!!", "*", "~", "#x", "a;b", "\N{RIGHT-TO-LEFT OVERRIDE}"])
def test_a_shell_reads_a_name_as_it_is(name: str):
    """Each name comes out of a shell as it went into the command."""
    assert ["redrive", "queues", "show", "shop:app", name] == shlex.split(command("queues show", "shop:app", name))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Filter(), ""),
        (Filter(ids=(2, 1)), " 2 1"),
        (Filter(state=State.DEAD, caught=False), " --state dead --not-caught"),
        (Filter(caught=True), " --caught"),
        (Filter(caught=False, skipped=False), " --not-caught --not-skipped"),
        (Filter(skipped=True), " --skipped"),
        (
            Filter(task="t", queue="q", hold=Hold.RETRY, reason="TIMEOUT", error="timed out", group="1-a", tag="eu"),
            " --task t --queue q --hold retry --reason TIMEOUT --error 'timed out' --group 1-a --tag eu",
        ),
    ],
)
def test_a_filter_is_a_list_of_options(where: Filter, expected: str):
    """Each condition of a filter is an option of the command."""
    assert f"redrive jobs list shop:app{expected} --limit 5" == of_jobs("jobs list", "shop:app", where, limit="5")
