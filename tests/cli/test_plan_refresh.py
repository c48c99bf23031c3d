"""`redrive plan` of a refresh policy in English: the charts of the refresh-with-retry-policy document."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from redrive.cli import cli
from redrive.errors import ConfigurationError, ScheduleSyntaxError
from redrive.plan.gantt import is_english

POLICY = """- Refresh the model every 2 hours in Europe/Kyiv
- Allow 1 hour for a response
- On the first failure, retry immediately
- On the second failure, retry after 10 minutes
- Panic
"""
START = ("--start", "2025-01-01T08:00:00")


def printed(*words: str, encoding: str = "utf-8") -> str:
    """Return the output of a command."""
    result = CliRunner(charset=encoding).invoke(cli, ["plan", *words], catch_exceptions=False)
    assert 0 == result.exit_code, result.output
    return result.stdout


def chart(lines: list[str]) -> list[str]:
    """Return the lines from the first attempt on."""
    return lines[lines.index("", 2) + 1 :]


def test_what_was_understood_is_printed():
    """Sentences in their canonical form, with the name of what is refreshed, and the next five refreshes."""
    lines = printed("At 6 AM and 4 PM every weekday in Europe/Kyiv, refresh BigTable; retry once", *START).splitlines()

    assert [
        "understood as:",
        "  Refresh BigTable on weekdays at 06:00 and 16:00 in Europe/Kyiv",
        "  Allow 10 minutes to complete",
        "  On the first failure, retry immediately",
        "  (after 2 failed attempts it is disabled until an update)",
        "next planned refreshes, in Europe/Kyiv:",
        "  Wed 2025-01-01 16:00",
        "  Thu 2025-01-02 06:00",
        "  Thu 2025-01-02 16:00",
        "  Fri 2025-01-03 06:00",
        "  Fri 2025-01-03 16:00",
    ] == lines[2:13]


def test_policies_without_an_end_say_so():
    """Single failed attempts have no plural, and retries without a limit never end."""
    assert "  (it never gives up)" in printed("Refresh daily; retry every hour", *START).splitlines()
    assert "(after 1 failed attempt it is disabled until an update)" in printed("Refresh daily", *START)


def test_a_failing_week_is_a_picture():
    """Each day has a line of the wall clock, with a stroke where a planned refresh begins."""
    lines = printed("Refresh daily at 6 AM; allow 1 hour; retry 2 times every 2 hours; give up after a week", *START)
    head = "a week in which each attempt times out:"
    week = lines.partition(head)[2].splitlines()[2:9]

    assert ["Thu 02", "Fri 03", "Sat 04", "Sun 05", "Mon 06", "Tue 07", "Wed 08"] == [each[:6] for each in week]
    assert f"Fri 03{' ' * 20}│██      ███      ███" == week[1]


def test_a_long_week_is_cut():
    """Of a refresh every minute, the first attempts are drawn."""
    assert "only the first 500 attempts are drawn" in printed(
        "Refresh every minute; allow 1 second; retry every minute", *START
    )


def test_attempts_are_bars_on_the_wall_clock():
    """Success, retry, and what follows, as the seed draws them."""
    lines = printed(POLICY, "--answers", "fail 4m, timeout, ok 2m", *START).splitlines()

    assert "Refresh the model every 2 hours in Europe/Kyiv" == lines[0]
    drawn = chart(lines)[:3]
    assert ["08:00  Refresh", "08:04  Retry 1", "10:00  Scheduled refresh (retry 2)"] == [
        line.partition("  ")[0] + "  " + line.partition("  ")[2].split("  ")[0].rstrip("│█ ") for line in drawn
    ]
    assert ["failed after 4m", "timed out after 1h", "succeeded after 2m"] == [
        line[line.rindex("█") + 1 :].strip(" │") for line in drawn
    ]
    assert "then the next refresh at 12:00" in lines


def test_without_answers_the_worst_case_is_shown():
    """If each attempt times out, draw them until the refresh gives up; a chart of more than a day has dates."""
    lines = printed("Refresh daily; allow 20 hours; retry immediately; panic", *START).splitlines()
    assert "then it gives up: Cannot refresh after 2 attempt(s); panic" in lines
    assert chart(lines)[0].startswith("Thu 02 00:00  Refresh")


def test_a_refresh_on_demand_begins_at_once():
    """Without a schedule there are no planned refreshes to be drawn, and a success is the end of it."""
    lines = printed(
        "Send a request; allow 90 seconds; retry immediately",
        "--answers",
        "ok 1s",
        "--start",
        "2025-01-01T08:00:00+00:00",
    ).splitlines()
    assert chart(lines)[0].startswith("08:00:00  Refresh")
    assert "then nothing is planned" == lines[-1]


def test_a_retry_that_is_due_is_announced():
    """After the last answer a retry may follow."""
    assert "then retry 2 at 08:24" in printed(POLICY, "--answers", "fail 4m, fail 10m", *START)


def test_warnings_are_printed_below_the_picture():
    """Print the warnings of `RefreshPolicy.lint`, in Mermaid as comments."""
    text = "Refresh every 2 hours; allow 2 hours; retry immediately"
    warning = "warning: No retry can ever be made between two planned refreshes"

    assert printed(text, *START).splitlines()[-1].startswith(warning)
    assert printed(text, *START, "--mermaid").startswith("%% then ")
    assert f"\n%% {warning}" in printed(text, *START, "--mermaid")
    assert "warning" not in printed("Refresh every 2 hours; give up after one week", *START)


def test_mermaid_and_svg_show_the_same(tmp_path: Path):
    """Both have a bar for each attempt, and the planned refreshes."""
    words = (POLICY, "--answers", "fail 4m, timeout, ok 2m", *START)
    mermaid = printed(*words, "--mermaid")
    printed(*words, "--svg", str(tmp_path / "refresh.svg"))
    drawn = ET.parse(tmp_path / "refresh.svg").getroot()  # noqa: S314 - it was written one line before
    bars = [each.get("class") for each in drawn.iter("{http://www.w3.org/2000/svg}rect")]

    assert "    Retry 1 :crit, 2025-01-01 08:04:00, 2025-01-01 09:04:00" in mermaid.splitlines()
    assert 3 == mermaid.count(" planned :milestone")
    assert ["page", "failure", "timeout", "success"] == bars


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("Refresh every moon",), ScheduleSyntaxError, "line 1, column 15: not understood"),
        (
            ("Refresh hourly", "--answers", "maybe"),
            ConfigurationError,
            "'maybe' is not the result of an attempt; write",
        ),
        (
            ("Refresh hourly", "--answers", "fail soon"),
            ConfigurationError,
            "'fail soon' is not the result of an attempt: a duration",
        ),
        (("Refresh hourly", "--json"), ConfigurationError, "a refresh has --mermaid and --svg"),
        (
            ('Refresh by rule "FREQ=DAILY;COUNT=1"', *START),
            ConfigurationError,
            "nothing is ever started after 2025-01-01 08:00",
        ),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], error: type[Exception], message: str):
    """Name the mistake and the correct form in the error."""
    with pytest.raises(error, match=message):
        CliRunner().invoke(cli, ["plan", *words], catch_exceptions=False)


def test_a_file_and_standard_input_may_be_in_english(tmp_path: Path):
    """Draw a policy in English alike from the command line, from a file, and from standard input."""
    path = tmp_path / "policy.txt"
    path.write_text(POLICY, encoding="utf-8")
    typed = printed(POLICY, *START)
    assert typed == printed(f"@{path}", *START)
    assert typed == CliRunner().invoke(cli, ["plan", "-", *START], input=POLICY, catch_exceptions=False).stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- Refresh hourly", True),
        ("1. Refresh hourly", True),
        ("Refresh hourly", True),
        ("5 1s catch recover", False),
        ("catch recover", False),
        ("policy.json", False),
        ("@file", False),
        ("five 1s", False),
        ("Five minutes", True),
        ('{"on": []}', False),
    ],
)
def test_sentences_are_no_directives(text: str, expected: bool):
    """Directives begin with a number or with their catch."""
    assert expected is is_english(text)
