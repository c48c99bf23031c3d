"""Errors in one line with the cause and the remedy; the exit status separates wrong calls from failures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from redrive import __version__
from redrive.cli import cli
from redrive.cli.loading import load_app
from redrive.errors import AppLoadError
from tests.cli.commands import walk

CHECKOUT = Path(__file__).parents[2]

BROKEN = {
    "plain.py": "other = 7\n",
    "late.py": "from redrive import App\npayments = App('memory://')\nother = 7\n",
    "lacking.py": "import gone\n",
    "failing.py": "x = 1\n1 / 0\n",
    "syntax.py": "def broken(:\n",
    "package/__init__.py": "",
    "package/jobs.py": "from redrive import App\napp = App('memory://')\n",
    "directive.py": "from redrive import App\napp = App('memory://')\n@app.task(retry='5 1y')\ndef charge(): ...\n",
    "twice.py": (
        "from redrive import App\napp = App('memory://')\n@app.task\ndef a(): ...\n@app.task(name='a')\ndef b(): ...\n"
    ),
    "whole.py": "from redrive import App\napp = App('memory://')\n@app.task(retry='1 1s catch x')\ndef a(): ...\n",
    "nowhere.py": "from redrive import App\napp = App('sqlite:///no/such/folder/jobs.db')\n",
    "strange.py": "from redrive import App\napp = App('mysql://x')\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with modules that are each wrong in one way, and unload them at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name, source in BROKEN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"package", *(Path(each).stem for each in BROKEN)}:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["dashboard"], "web"),
        (["flower", "--port", "5555"], "web"),
        (["beat"], "worker"),
        (["ps"], "workers list"),
        (["retry", "7"], "jobs retry"),
        (["purge", "mail"], "jobs cancel"),
        (["why", "7"], "jobs show"),
        (["jobs", "why", "shop:app", "7"], "jobs show"),
        (["jobs", "count", "shop:app"], "queues list"),
    ],
)
def test_words_of_other_queues_are_answered_with_the_command(words: list[str], command: str):
    """A command that users of other queues guess is refused with the name of ours."""
    result = CliRunner().invoke(cli, words)

    assert 2 == result.exit_code
    assert f"Did you mean 'redrive {command}'?" in result.output


def test_guessed_words_are_no_commands_and_lead_to_commands():
    """Each word that is guessed names a command that exists, and hides none."""
    root = typer.main.get_command(cli)
    paths = {path for path, _ in walk()}
    wanted = {word: tuple(part for part in line.split() if "-" not in part)[:2] for word, line in root.guesses.items()}

    assert {} == {word: path for word, path in wanted.items() if path not in paths}
    assert set() == {tuple(word.split()) for word in root.guesses} & paths


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["plain:app", "-Q", "mail"], "-Q; write --queue mail, once for each queue"),
        (["plain:app", "--queues", "mail"], "--queues; write --queue mail, once for each queue"),
        (["-A", "plain:app"], "-A; the App is an argument: redrive worker shop.jobs:app"),
        (["plain:app", "-c", "4"], "-c; write --concurrency 4"),
        (["plain:app", "--concurency", "4"], "--concurency (Possible options: --concurrency)"),
        (["plain:app", "--colour", "4"], "--colour"),
    ],
)
def test_options_of_other_workers_are_answered_with_ours(words: list[str], right: str):
    """An option that is nearly one of ours has the answer of the parser."""
    result = CliRunner().invoke(cli, ["worker", *words])

    assert 2 == result.exit_code
    shown = " ".join(line.strip("│ ") for line in result.output.splitlines() if line.startswith("│"))
    assert f"No such option: {right}" == shown


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("plain", "'plain' is not of the form module:app, for example payments.jobs:app"),
        ("late.py:app", "'late.py' is a file, and an App is named by its module: write late:app"),
        (
            "./package/jobs.py:app",
            "'./package/jobs.py' is a file, and an App is named by its module: write package.jobs:app",
        ),
        (":app", "':app' is not of the form module:app, for example payments.jobs:app"),
        ("plain:", "'plain:' is not of the form module:app, for example payments.jobs:app"),
        ("nope:app", "there is no module 'nope' here ({folder}) or on the Python path"),
        ("nope.jobs:app", "there is no module 'nope.jobs' here ({folder}) or on the Python path"),
        ("package.nope:app", "there is no module 'package.nope' here ({folder}) or on the Python path"),
        ("plain:app", "module 'plain' has no 'app'; it has no App at all"),
        ("late:app", "module 'late' has no 'app'; it has the App payments"),
        ("late:other", "late:other is a int, not a redrive.App"),
        (
            "lacking:app",
            "importing 'lacking' failed: ModuleNotFoundError: No module named 'gone' ({folder}/lacking.py, line 1)",
        ),
        (
            "failing:app",
            "importing 'failing' failed: ZeroDivisionError: division by zero ({folder}/failing.py, line 2)",
        ),
        ("syntax:app", "importing 'syntax' failed: SyntaxError: invalid syntax (syntax.py, line 1)"),
        (
            "twice:app",
            "two tasks are called 'a': twice.a and twice.b. Give one another name: @app.task(name=...)",
        ),
        ("whole:app", "task 'a' is to be caught by 'x', but there is no such task; known tasks: a"),
    ],
)
def test_a_wrong_app_is_one_line_and_status_2(redrive, folder: Path, reference, expected):
    """Errors in the reference, the module or the app are reported without a traceback."""
    output = redrive("worker", reference)

    assert (2, "", f"redrive: {expected.format(folder=folder)}\n") == (output.status, output.out, output.err)


def test_a_url_that_is_not_understood_is_status_2(redrive):
    """Report a wrong configuration of the App itself in one line that lists the forms."""
    output = redrive("jobs", "list", "strange:app")

    assert (2, 1) == (output.status, len(output.err.splitlines()))
    assert output.err.startswith("redrive: the store URL 'mysql://x' is not understood; forms: sqlite:///relative.db, ")


@pytest.mark.parametrize("prefix", ["ops/", "ops", "/ops/", "//ops", "https://ops.example.com"])
def test_a_prefix_of_the_dashboard_is_a_path(redrive, prefix: str):
    """Texts that are no path, or end with a slash, are refused before the App is loaded."""
    output = redrive("web", "late:payments", "--prefix", prefix)

    assert (2, True) == (output.status, output.err.endswith(" is not a path such as /ops/redrive\n"))


def test_an_unreachable_database_is_status_1(redrive, folder: Path):
    """Exit with 1 if the call is correct and the database is unreachable."""
    output = redrive("jobs", "list", "nowhere:app")

    assert 1 == output.status
    assert output.err.startswith(f"redrive: {folder}/no/such/folder/jobs.db cannot be opened: the directory ")
    assert output.err.endswith("does not exist; make it first\n")


def test_a_directive_that_cannot_be_read_names_the_function(redrive):
    """Print one line, and below it the directive with a caret."""
    output = redrive("jobs", "list", "directive:app")
    first, text, caret = output.err.splitlines()

    assert 2 == output.status
    assert first.startswith("redrive: task directive.charge: ")
    assert ("    5 1y", text.index("y")) == (text, caret.index("^"))


def test_an_app_is_found_in_a_package(folder: Path):
    """Import the app by the full name of its module; the current folder is importable."""
    sys.path.remove(str(folder))
    app = load_app("package.jobs:app")

    assert "" in sys.path
    assert app is sys.modules["package.jobs"].app


def test_an_error_of_loading_can_be_printed_as_json():
    """Programs that load an app by its reference get an AppLoadError."""
    with pytest.raises(AppLoadError, match="there is no module 'nope'"):
        load_app("nope:app")


# ------------------------------------------------------------------------------------------------------------- help


def test_the_version_is_printed(redrive):
    """Print the version, and do no more."""
    output = redrive("--version")

    assert (0, f"redrive {__version__}\n", "") == (output.status, output.out, output.err)


def test_an_import_that_fails_within_redrive_names_the_line_of_the_user(redrive, folder: Path):
    """Name the line that imports an integration without its package, not the line in redrive."""
    (folder / "lacking.py").write_text("from redrive.contrib import extra\n\nwith extra('httpx'):\n    import gone\n")
    output = redrive("worker", "lacking:app")

    assert 2 == output.status
    assert "pip install \"redrive[httpx]\" (No module named 'gone')" in output.err
    assert output.err.endswith(f"({folder}/lacking.py, line 3)\n")


@pytest.mark.parametrize("words", [["--help"], ["worker", "--help"], ["jobs", "--help"], ["jobs", "redrive", "--help"]])
def test_help_is_there_for_each_command(redrive, words):
    """Print the usage of the command on standard output."""
    output = redrive(*words)

    assert (0, "", True) == (output.status, output.err, "Usage: " in output.out)


def test_commands_without_their_extra_name_it(redrive, monkeypatch: pytest.MonkeyPatch):
    """The help lists all commands without the extra of the dashboard; those that need it name it in one line."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("redrive.cli.web", "redrive.cli.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    listed, refused = redrive("--help"), redrive("web", "shop:app", "--port", "7")

    assert (0, 2) == (listed.status, refused.status)
    assert refused.err.startswith('redrive: this needs a package that is not installed: pip install "redrive[web]"')


@pytest.mark.parametrize("words", [[], ["jobs"]])
def test_a_missing_command_is_an_error(redrive, words):
    """Without a command print the help, and exit with the status of a wrong call."""
    output = redrive(*words)

    assert (2, True) == (output.status, "Commands" in output.out + output.err)


@pytest.mark.parametrize("words", [["nonsense"], ["jobs", "nonsense"], ["jobs", "show", "shop:app", "seven"]])
def test_a_wrong_call_is_status_2(redrive, words):
    """Exit with 2 for an unknown command or argument."""
    assert 2 == redrive(*words).status


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (["--version"], 0, f"redrive {__version__}\n", ""),
        (["worker", "nope:app"], 2, "", "redrive: there is no module 'nope' here ({folder}) or on the Python path\n"),
    ],
)
def test_python_m_redrive_is_the_command(folder: Path, words, status, out, err):
    """Running `python -m redrive` prints the same as `redrive`, without a traceback."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    command = [sys.executable, "-m", "redrive", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    assert (status, out, err.format(folder=folder)) == (done.returncode, done.stdout, done.stderr)
