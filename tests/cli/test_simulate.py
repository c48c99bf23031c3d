"""`redrive simulate` as it is called: tables, data, drawings, errors."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from redrive.simulate import SCENARIOS, run, scenario


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to draw into, in an environment without a terminal."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_table_shows_each_contender(redrive):
    """Print the question, the setting, the headings and a line for each contender, all uncut."""
    output = redrive("simulate", "pushback", "--clients", "5")

    title, setting, heads, *rows = output.out.splitlines()
    assert 0 == output.status
    assert "pushback: Calls before the time that the target has named" == title
    assert setting.endswith("(Here there are 5 clients, not 100.)")
    assert ["calls too early", "peak after it, per 100 ms", "success [%]"] == heads.strip().split("  ")
    assert [row.contender for row in run(scenario("pushback"), clients=5).rows] == [
        row.partition("  ")[0] for row in rows if row
    ]


def test_the_users_policy_is_shown_beside_the_others(redrive):
    """Print it in the last line, under the name of its directive."""
    output = redrive("simulate", "deadline", "--clients", "9", "--policy", "5 1s 20s")

    assert output.out.rstrip().splitlines()[-1].startswith("yours: 5 1s 20s  ")


def test_json_output_is_one_object_in_one_line(redrive):
    """Print the whole result as one object, with null for contenders that never end."""
    (line,) = redrive(
        "simulate", "deadline", "--clients", "9", "--seed", "3", "--seeds", "2", "--json"
    ).out.splitlines()
    printed = json.loads(line)

    assert ("deadline", 9, [3, 4]) == (printed["scenario"], printed["clients"], printed["seeds"])
    endless = next(each for each in printed["contenders"] if each["name"] == "exponential")
    assert {"mean": None, "low": None, "high": None} == endless["figures"]["longest overshoot"]


def test_a_drawing_is_valid_and_the_same_each_time(redrive, folder):
    """Create the folder, and draw the same for the same seed."""
    first = redrive("simulate", "pushback", "--clients", "9", "--svg", "a", "--policy", '{"version": 1}')
    drawn = [redrive("simulate", "pushback", "--clients", "9", "--svg", where) for where in ("b", "c")]

    assert 2 == first.status
    assert [0, 0] == [output.status for output in drawn]
    texts = [(folder / where / "pushback.svg").read_text() for where in ("b", "c")]
    assert texts[0] == texts[1]
    assert "{http://www.w3.org/2000/svg}svg" == ET.fromstring(texts[0]).tag  # noqa: S314 - our own drawing


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["storm"], f"there is no scenario 'storm'; there are {', '.join(each.name for each in SCENARIOS)}"),
        (["herd", "--clients", "0"], "clients=0, 1 seeds: 1 to 100000 clients, and one seed or more"),
        (["pushback", "--clients", "1", "--svg", "taken"], "taken/pushback.svg cannot be written: File exists"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(redrive, folder, words, message):
    """Print the mistake and the correct form, and no other output."""
    (folder / "taken").write_text("a file")
    output = redrive("simulate", *words)

    assert (2, f"redrive: {message}\n") == (output.status, output.err)
