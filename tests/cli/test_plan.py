"""`redrive plan` as it is called: sources, options, errors."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redrive import Policy

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "how-to" / "see-a-policy.md"
STORED = json.dumps(Policy.parse("2 1s catch tidy").to_dict(), indent=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to read from and write to, in an environment without a terminal."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def patient(folder: Path) -> Path:
    """Write the policy of the how-to page to a file."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, str] = {}
    exec(example, names)  # noqa: S102 - our own page, which Sybil executes too
    (folder / "patient.json").write_text(names["text"])
    return folder / "patient.json"


COMMANDS = re.findall(r"^```console\n\$ redrive (.*?)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_the_page_shows_what_is_printed(redrive, patient, command, output):
    """Each command of the how-to page prints what stands below it, where something does."""
    done = redrive(*shlex.split(command))

    assert (0, output) == (done.status, done.out if output else "")


def test_the_page_shows_the_drawing(redrive, patient, folder):
    """Compare the picture of the how-to page with the output of ``--svg``."""
    done = redrive("plan", "patient.json", "--svg", "drawn.svg")

    assert (0, "the timeline is drawn in drawn.svg\n") == (done.status, done.err)
    assert (PAGE.parent / "patient.svg").read_text() == (folder / "drawn.svg").read_text()


@pytest.mark.acceptance
def test_output_into_a_pipe_has_no_colors(folder):
    """Write 100 columns of plain text into a pipe, without escape codes."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src"), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "redrive", "plan", "5 1s catch recover"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    assert (0, "", COMMANDS[0][1]) == (done.returncode, done.stderr, done.stdout)


# ------------------------------------------------------------------------------------------------------------- sources


def test_a_policy_is_read_from_each_source(redrive, folder, monkeypatch):
    """Read the same plan from a directive, JSON, a path, a file by ``@``, and standard input."""
    (folder / "stored.JSON").write_text(STORED)
    (folder / "policy.txt").write_bytes(b"\xef\xbb\xbf2 1s catch tidy\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STORED.encode())))
    given = ["2 1s catch tidy", STORED, "stored.JSON", f"{folder}/stored.JSON", "@stored.JSON", "@policy.txt", "-"]

    assert {"2 1s catch tidy\n"} == {redrive("plan", each).out.splitlines(keepends=True)[0] for each in given}


def test_a_catch_task_may_be_called_json(redrive):
    """Directives of several words are no file names."""
    done = redrive("plan", "0 catch tasks.json")

    assert "catch tasks.json: after the last failure" in done.out


def test_a_policy_without_a_directive_is_called_by_its_file(redrive, folder):
    """Name the policy by its file, or by its kind."""
    text = json.dumps(Policy(attempts=2).to_dict())
    (folder / "mine.json").write_text(text)

    assert ["mine.json", "policy"] == [redrive("plan", given).out.splitlines()[0] for given in ("mine.json", text)]


# ------------------------------------------------------------------------------------------------------------- options


def test_json_is_one_line(redrive):
    """Print JSON and no other text."""
    done = redrive("plan", "2 1s", "--json")

    assert (1, "2 1s") == (done.out.count("\n"), json.loads(done.out)["title"])


def test_retries_cut_the_table(redrive):
    """Show a limited number of retries for each kind of failure, then an ellipsis."""
    lines = redrive("plan", "100 1s", "--retries", "2").out.splitlines()

    assert ["    1", "    2", "… and"] == [line[:5] for line in lines[5:8]]


def test_strict_mode_follows_ftl(redrive):
    """Apply the limits of FTL, with its messages."""
    done = redrive("plan", "5 500ms", "--strict")

    assert (2, "") == (done.status, done.out)
    assert done.err.startswith("redrive: could not parse min backoff duration: ")


def test_a_terminal_gets_its_width_and_colors(redrive, monkeypatch):
    """Use the width and colours of a terminal, real or forced by the environment."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    done = redrive("plan", "3 1s").out
    plain = re.sub("\x1b\\[[0-9;]*m", "", done)

    assert "\x1b[" in done
    assert 60 == max(map(len, plain.splitlines()))


def test_a_name_that_cannot_be_written_is_no_traceback(redrive, monkeypatch):
    """Print question marks for the name, and ASCII for the bars."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", out)
    assert 0 == redrive("plan", "1 1s catch aufräumen").status
    out.seek(0)
    done = out.read()

    assert "catch aufr?umen" in done
    assert "=====" in done


# -------------------------------------------------------------------------------------------------------------- errors


def test_a_fault_is_shown_with_a_caret(redrive):
    """Print the error of the policy unchanged."""
    done = redrive("plan", "5 1q")

    assert (2, "") == (done.status, done.out)
    assert [
        "redrive: there is no unit 'q'",
        "    5 1q",
        "       ^ write whole numbers with the units d, h, m, s, ms, largest first, for example 1h30m or 500ms",
    ] == done.err.splitlines()


def test_json_that_cannot_be_read_is_shown_with_its_line(redrive, folder):
    """And a caret; of a long line only the part around the fault."""
    (folder / "broken.json").write_text('{\n "version": 1,\n "attempts" 3\n}\n')
    (folder / "long.json").write_text(" " * 500 + '{"attempts" 3}' + " " * 500)

    assert (
        "redrive: broken.json: line 3 cannot be read\n     \"attempts\" 3\n                ^ expecting ':' delimiter\n"
    ) == redrive("plan", "broken.json").err
    assert (2, "expecting ':' delimiter") == (
        len(redrive("plan", "long.json").err.splitlines()[1].strip().split()),
        redrive("plan", "long.json").err.strip().split("^ ")[1],
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gone.json"], "there is no file gone.json"),
        (["@gone"], "there is no file gone"),
        (["@"], "name a file after the @, as in @policy.txt"),
        (["./"], ". cannot be read: Is a directory"),
        (["binary.json"], "binary.json is not text in UTF-8: byte 2 is wrong"),
        (["early.json"], "early.json: policy: the key 'on' is missing"),
        (['{"version": 2}'], "policy.version: 2 is not 1, the only version that is known here"),
        (["[1]"], "policy: [1] is not a mapping"),
        (["[" * 100_000], "the policy is nested too deeply"),
        (['{"version": 1}', "--strict"], "--strict is about directives, and this policy is JSON"),
        (["1 1s", "--json", "--mermaid"], "give --json or --mermaid, not both"),
        (["1 1s", "--svg", "no/such.svg"], "no/such.svg cannot be written: No such file or directory"),
    ],
)
def test_a_wrong_call_prints_one_line_with_status_2(redrive, folder, words, expected):
    """Print one line, and no other output, for any wrong call."""
    (folder / "binary.json").write_bytes(b"{\xff")
    (folder / "early.json").write_text('{"version": 1}')
    done = redrive("plan", *words)

    assert (2, "", f"redrive: {expected}\n") == (done.status, done.out, done.err)


def test_a_number_of_thousands_of_digits_is_refused(redrive):
    """Refuse the number as Python does."""
    done = redrive("plan", '{"version": ' + "9" * 5000 + "}")

    assert (2, 1) == (done.status, done.err.count("\n"))
    assert "Exceeds the limit" in done.err
