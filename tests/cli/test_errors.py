"""Errors are one line that says what was wrong and what to do; the exit status tells whose fault it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import __version__
from redrive.cli.loading import load_app
from redrive.errors import AppLoadError

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
    """A folder with modules that are wrong in one way each; forgotten in the end."""
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
    ("reference", "expected"),
    [
        ("plain", "'plain' is not of the form module:app, for example payments.jobs:app"),
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
        ("whole:app", "task 'a' is to be caught by 'x', but there is no such task: a"),
    ],
)
def test_a_wrong_app_is_one_line_and_status_2(redrive, folder: Path, reference, expected):
    """Whatever is wrong with the reference, the module or the app, it is said without a traceback."""
    said = redrive("worker", reference)

    assert (2, "", f"redrive: {expected.format(folder=folder)}\n") == (said.status, said.out, said.err)


def test_a_url_that_is_not_understood_is_status_2(redrive):
    """The App itself is configured wrongly; one line lists the forms."""
    said = redrive("jobs", "list", "strange:app")

    assert (2, 1) == (said.status, len(said.err.splitlines()))
    assert said.err.startswith("redrive: the store URL 'mysql://x' is not understood; forms: sqlite:///relative.db, ")


def test_a_database_that_cannot_be_had_is_status_1(redrive, folder: Path):
    """The call is right, the world is not."""
    said = redrive("jobs", "list", "nowhere:app")

    assert 1 == said.status
    assert said.err.startswith(f"redrive: {folder}/no/such/folder/jobs.db cannot be opened: the directory ")
    assert said.err.endswith("does not exist; make it first\n")


def test_a_directive_that_cannot_be_read_names_the_function(redrive):
    """One line, and below it the directive with a caret."""
    said = redrive("jobs", "list", "directive:app")
    first, text, caret = said.err.splitlines()

    assert 2 == said.status
    assert first.startswith("redrive: task directive.charge: ")
    assert ("    5 1y", text.index("y")) == (text, caret.index("^"))


def test_an_app_is_found_in_a_package(folder: Path):
    """By the full name of its module; the current folder is importable."""
    sys.path.remove(str(folder))
    app = load_app("package.jobs:app")

    assert "" in sys.path
    assert app is sys.modules["package.jobs"].app


def test_an_error_of_loading_is_for_programs_too():
    """Whoever loads an app by its reference gets an AppLoadError."""
    with pytest.raises(AppLoadError, match="there is no module 'nope'"):
        load_app("nope:app")


# ------------------------------------------------------------------------------------------------------------- help


def test_the_version_is_said(redrive):
    """And nothing else is done."""
    said = redrive("--version")

    assert (0, f"redrive {__version__}\n", "") == (said.status, said.out, said.err)


@pytest.mark.parametrize("words", [["--help"], ["worker", "--help"], ["jobs", "--help"], ["jobs", "redrive", "--help"]])
def test_help_is_there_for_each_command(redrive, words):
    """It goes to standard output, and says how the command is used."""
    said = redrive(*words)

    assert (0, "", True) == (said.status, said.err, "Usage: " in said.out)


@pytest.mark.parametrize("words", [[], ["jobs"]])
def test_a_command_is_asked_for(redrive, words):
    """Without a command there is help, and the status of a wrong call."""
    said = redrive(*words)

    assert (2, True) == (said.status, "Commands" in said.out + said.err)


@pytest.mark.parametrize("words", [["nonsense"], ["jobs", "nonsense"], ["jobs", "show", "shop:app", "seven"]])
def test_a_wrong_call_is_status_2(redrive, words):
    """A command or an argument that is not there."""
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
    """`python -m redrive` says what `redrive` says, and no traceback."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
    command = [sys.executable, "-m", "redrive", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    assert (status, out, err.format(folder=folder)) == (done.returncode, done.stdout, done.stderr)
