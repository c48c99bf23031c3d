"""`manage.py redrive`: the command line of redrive, on the project's own jobs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from django.core.management import ManagementUtility, call_command
from django.test import override_settings
from django.utils import autoreload

from redrive.cli import cli
from redrive.cli.loading import load_app
from redrive.contrib.django.compat import task_backends
from redrive.contrib.django.management.commands.redrive import of_backend, serve
from redrive.errors import AppLoadError
from tests.contrib.django.project import BACKEND, number
from tests.contrib.django.sample import tasks

TARGET = "redrive.contrib.django.cli_target:default"


def commands():
    """All commands of redrive, as words, and whether they take an App."""
    found = {}
    for name, command in typer.main.get_command(cli).commands.items():
        for sub, each in getattr(command, "commands", {"": command}).items():
            found[(name, sub) if sub else (name,)] = any(
                (each.metavar or "").startswith("MODULE:APP") for each in each.params
            )
    return found


COMMANDS = commands()


@pytest.fixture(scope="module")
def group():
    """Return the commands of the project; to make them takes ten times as long as a test."""
    return of_backend("default")


@pytest.mark.parametrize(("words", "takes"), COMMANDS.items(), ids=map(" ".join, COMMANDS))
def test_no_command_asks_for_an_app(words, takes, group, capsys):
    """Commands that take an App get that of the project: their usage has none, and begins as the user has called it."""
    command = group
    for word in words:
        command = command.commands[word]

    with pytest.raises(SystemExit):
        group([*words, "--help"], prog_name="manage.py redrive")
    usage = " ".join(capsys.readouterr().out.split())
    assert f"Usage: manage.py redrive {' '.join(words)} " in usage
    assert "MODULE:APP" not in usage
    # Some commands take several apps.
    assert takes == (getattr(command.callback, "keywords", {}) in ({"app": TARGET}, {"app": [TARGET]}))


def test_a_group_without_a_command_prints_its_help(capsys):
    """Groups without a command print their own help."""
    with pytest.raises(SystemExit):
        of_backend("default")(["jobs"], prog_name="manage.py redrive")

    assert "Usage: manage.py redrive jobs [OPTIONS] COMMAND" in capsys.readouterr().out


def test_jobs_are_listed(capfd):
    """`manage.py redrive jobs list` shows the jobs of the project, with the options of the command."""
    new = tasks.add.using(queue_name="listed").enqueue(1, 2)
    before = list(sys.argv)

    with pytest.raises(SystemExit) as left:
        call_command("redrive", "jobs", "list", "--queue", "listed", "--json")

    assert 0 == (left.value.code or 0)
    assert f'"id":"{number(new)}","task":"tests.contrib.django.sample.tasks.add"' in capfd.readouterr().out
    assert before == sys.argv
    task_backends["default"].app.job(number(new)).cancel()


def test_the_app_of_a_backend_has_an_address():
    """`redrive jobs list redrive.contrib.django.cli_target:default` works without `manage.py`."""
    assert task_backends["default"].app is load_app(TARGET)


def test_an_unknown_alias_is_named(capfd):
    """Unknown backends are an error that lists those of redrive."""
    others = {"default": {"BACKEND": BACKEND}, "dummy": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}}
    with override_settings(TASKS=others), pytest.raises(SystemExit) as left:
        call_command("redrive", "--backend", "typo", "jobs", "list")

    assert 2 == left.value.code
    assert "redrive: TASKS has no 'typo'; aliases of redrive's backends: default\n" == capfd.readouterr().err


def test_ids_of_results_name_jobs(capfd):
    """`manage.py redrive jobs` takes the ids that a program shows, as well as the numbers of jobs."""
    new = tasks.add.enqueue(1, 2)
    shown = []
    for each in (new.id, str(number(new))):
        with pytest.raises(SystemExit):
            call_command("redrive", "jobs", "show", each)
        shown.append(capfd.readouterr().out.splitlines()[0])

    assert shown[0] == shown[1]
    assert "sample.tasks.add" in shown[0]
    task_backends["default"].app.job(number(new)).cancel()


def test_the_help_of_the_command_lists_the_commands(capsys):
    """`manage.py redrive --help` is the help of Django, with the commands."""
    with pytest.raises(SystemExit):
        call_command("redrive", "--help")

    assert "Commands: worker, dev, demo, plan," in capsys.readouterr().out


def test_a_backend_that_is_not_ours_is_refused():
    """Backends of other packages are refused."""
    others = {
        "default": {"BACKEND": BACKEND},
        "dummy": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
    }
    with override_settings(TASKS=others), pytest.raises(AppLoadError, match="not on redrive.contrib.django"):
        load_app("redrive.contrib.django.cli_target:dummy")


def test_a_worker_of_a_developer_is_reloaded(monkeypatch):
    """`--reload` starts the worker under Django's reloader and is not passed on."""
    called = []
    monkeypatch.setattr(autoreload, "run_with_reloader", lambda *what: called.append(what))

    call_command("redrive", "worker", "--reload", "--quiet")

    assert [(serve, ["worker", TARGET, "--quiet"])] == called


def test_a_reloaded_worker_is_a_separate_process(capfd):
    """Its command line is run by this Python."""
    serve(["--version"])

    assert "redrive " in capfd.readouterr().out


def test_a_worker_that_is_reloaded_ends_with_its_reloader(tmp_path):
    """After the other end of the pipe has closed, the worker shuts down."""
    (tmp_path / "work.py").write_text("import redrive\napp = redrive.App('memory://')\n")
    command = [sys.executable, "-m", "redrive.contrib.django.reloader", "worker", "work:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert b"serves all queues" in process.stderr.readline()
        process.stdin.close()

        assert 0 == process.wait(30)


def test_without_arguments_the_help_is_printed():
    """`manage.py redrive` alone shows the help."""
    with pytest.raises(SystemExit) as left:
        call_command("redrive")

    assert 0 == (left.value.code or 0)


def test_the_command_needs_the_extra_cli(monkeypatch, capsys):
    """Without typer the command prints what to install, and exits as for a wrong call."""
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.setitem(sys.modules, "typer.main", None)

    with pytest.raises(SystemExit, match="2"):
        ManagementUtility(["manage.py", "redrive", "worker"]).execute()

    assert 'error: this needs a package that is not installed: pip install "redrive[cli]"' in capsys.readouterr().err
