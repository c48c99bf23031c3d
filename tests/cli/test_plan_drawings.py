"""A plan as text, JSON, Mermaid and SVG."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from redrive.drawing import ASCII, BLOCKS, glyphs_for
from redrive.plan.layout import Axis, axis_of
from redrive.plan.mermaid import as_mermaid
from redrive.plan.rows import PolicyPlan, as_json, plan_of
from redrive.plan.svg import as_svg
from redrive.plan.text import as_text
from redrive.plan.words import shown
from redrive.policy import Backoff, Policy, Rule

SVG = "{http://www.w3.org/2000/svg}"
MISSED = Policy(attempts=4, deadline="5s", backoff=Backoff.exponential(1), jitter="none", hints="ignore", catch="tidy")
DRAWN = Policy(attempts=3, deadline=None, backoff=Backoff.constant(4), jitter="equal")
RULED = Policy(attempts=2, deadline=None, jitter="none", rules=(Rule("a.B", attempts=2), Rule("a.B")), catch="tidy")
HOSTILE = Policy(on='a.<b>&"c"\x1b[31m#:;', attempts=2, deadline=None)


def made(policy: Policy, title: str = "a policy") -> PolicyPlan:
    """Return a plan."""
    return plan_of(policy, title=title)


def text(policy: Policy, width: int = 60, glyphs=BLOCKS) -> list[str]:
    """Return the lines of a plan, without style."""
    return [line.plain for line in as_text(made(policy), width=width, glyphs=glyphs)]


# ---------------------------------------------------------------------------------------------------------------- text


MISSED_TEXT = """\
a policy
Calls up to 4 times; waits 1s, 2s, 4s; at most 5s of waiting
in all; ends after 5s at the latest; then hands over to
tidy.

retry  wait  at  in time  0s         2s        4s
    1    1s  1s      yes  █████                     ┊
    2    2s  3s      yes       ███████████          ┊
    3    4s  7s       no                  ╌╌╌╌╌╌╌╌╌╌┊╌╌╌╌╌╌
catch        3s                           ◆

catch tidy: after the last failure, then every 8s until it
succeeds
█ wait   ╌ does not fit the deadline   ┊ deadline   ◆ catch
"""


def test_a_missed_deadline_in_text():
    """Strike the retry that does not fit, show the catch at the failure before it, and the deadline as a line."""
    assert MISSED_TEXT.splitlines() == text(MISSED)[:14]


def test_jitter_in_text():
    """Draw the band from the earliest moment to the latest, with the wait before jitter inside."""
    lines = text(DRAWN, width=52)

    assert [
        "retry   wait     at  0s                 5s",
        "    1  2s-4s  2s-4s  ████████▓▓▓▓▓▓▓▸",
        "    2  2s-4s  4s-8s                 ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▸",
    ] == lines[5:8]
    assert "█ wait before jitter   ░ the retry may come here" in lines


def test_sections_in_text():
    """Sections have a name and a description of their limit; one that is never met has no rows."""
    lines = text(RULED)

    assert "any other failure" in lines
    assert "rule 1 (a.B): counted apart" in lines
    assert ["rule 2 (a.B): never met: an earlier rule takes these", "failures", ""] == lines[
        lines.index("rule 2 (a.B): never met: an earlier rule takes these") :
    ][:3]


def test_an_endless_policy_in_text_ends_with_an_ellipsis():
    """And with words for what follows."""
    lines = text(MISSED.with_(attempts=None, deadline=None))

    assert any(line == "… and so on without end" for line in lines)


def test_a_narrow_terminal_gets_the_bars_below():
    """First the figures, then the bars, and no line is wider than the terminal."""
    lines = text(MISSED, width=36)
    heads = [line for line in lines if line.startswith("retry")]

    assert ["retry  wait  at  in time", "retry  0s                    5s"] == heads
    assert max(map(len, lines)) <= 36


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 250])
@pytest.mark.parametrize("policy", [MISSED, DRAWN, RULED, Policy(attempts=None, deadline="10s")])
def test_no_line_is_wider_than_the_terminal(policy, width):
    """Whatever the policy."""
    assert max(map(len, text(policy, width=width))) <= width


def test_a_wait_of_zero_is_a_mark():
    """Draw a mark, so that the retry is visible."""
    lines = text(Policy(attempts=3, deadline=None, jitter="none", backoff=Backoff.listed([0, 1])))

    assert "    1    0s  0s  ▏▸" == lines[5]


def test_a_far_deadline_does_not_change_the_drawing():
    """Print a far deadline as text only, since bars that end before the middle are unreadable."""
    lines = text(MISSED.with_(deadline="1h"))

    assert not any("┊" in line for line in lines)
    assert any(line.startswith("The deadline is 1h") for line in lines)


@pytest.mark.parametrize(("encoding", "glyphs"), [("utf-8", BLOCKS), ("ascii", ASCII), ("cp1252", ASCII), ("x", ASCII)])
def test_unencodable_characters_are_drawn_in_ascii(encoding, glyphs):
    """Blocks are drawn only where the output can encode them."""
    assert glyphs == glyphs_for(encoding)


def test_ascii_is_ascii():
    """Draw with ASCII characters only."""
    assert all(line.isascii() for line in text(MISSED, glyphs=ASCII))


def test_each_style_has_a_word_beside_it():
    """Struck rows have the style, and the word beside it."""
    struck = [
        line for line in as_text(made(MISSED), width=60) if any("strike" in str(span.style) for span in line.spans)
    ]

    assert ["    3    4s  7s       no"] == [line.plain[:24] for line in struck]


def test_escape_codes_in_names_are_not_printed():
    """Names from a file cannot send escape codes to the terminal."""
    assert not any("\x1b" in line for line in text(HOSTILE))


# ---------------------------------------------------------------------------------------------------------------- axis


@pytest.mark.parametrize(
    ("end", "most", "ticks"),
    [
        ("7s", 4, ["0s", "2s", "4s", "6s"]),
        ("7s", 8, ["0s", "1s", "2s", "3s", "4s", "5s", "6s", "7s"]),
        ("1h25m15s", 6, ["0s", "15m", "30m", "45m", "1h", "1h15m"]),
        ("31s", 2, ["0s", "30s"]),
        ("0.3ms", 4, ["0s", "0.1ms", "0.2ms", "0.3ms"]),
        ("8d", 3, ["0s", "5d"]),
    ],
)
def test_ticks_are_round(end, most, ticks):
    """Choose as many ticks as there is room for, at round steps."""
    axis = Axis(timedelta(milliseconds=0.3) if end == "0.3ms" else Policy(deadline=end).deadline)

    assert ticks == [shown(tick) for tick in axis.ticks(most)]


def test_ticks_have_no_end():
    """Even a thousand times a thousand years has a scale."""
    assert len(Axis(timedelta(days=365_250_000)).ticks(5)) <= 5


@pytest.mark.parametrize(
    ("deadline", "end"),
    [("1h", 7.0), ("14s", 14.0), ("8s", 8.0), ("6s", 7.0), ("2s", 2.5)],
)
def test_the_deadline_is_shown_if_it_is_near(deadline, end):
    """And what misses it is cut not far behind it."""
    (section,) = made(MISSED.with_(deadline=deadline)).sections

    assert end == axis_of(section, Policy(deadline=deadline).deadline).end.total_seconds()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(milliseconds=1234.4), "1s234ms"),
        (timedelta(seconds=90.6), "1m31s"),
    ],
)
def test_durations_have_a_readable_precision(value, words):
    """Milliseconds below a minute, seconds above."""
    assert words == shown(value)


# ---------------------------------------------------------------------------------------------------------------- json


def test_json_has_all_figures_in_seconds():
    """Print one line, with the policy itself."""
    line = as_json(made(DRAWN), DRAWN)
    printed = json.loads(line)

    assert "\n" not in line
    assert {
        "retry": 2,
        "wait": {"low": 2.0, "nominal": 4.0, "high": 4.0},
        "at": {"low": 4.0, "nominal": 8.0, "high": 8.0},
        "in_time": "yes",
    } == printed["sections"][0]["retries"][1]
    assert (3, 8.0, None, None) == (printed["executions"], printed["waiting"], printed["time"], printed["catch"])
    assert DRAWN == Policy.from_dict(printed["policy"])


def test_json_contains_retries_that_do_not_fit():
    """And the deadline, the catch and the end."""
    printed = json.loads(as_json(made(MISSED), MISSED))

    assert ["yes", "yes", "no"] == [row["in_time"] for row in printed["sections"][0]["retries"]]
    assert (5.0, {"task": "tidy", "every": 8.0}, 3.0) == (
        printed["deadline"],
        printed["catch"],
        printed["sections"][0]["ends"]["high"],
    )


# ------------------------------------------------------------------------------------------------------------- mermaid

TASK = re.compile(
    r" {4}[^#:;%]+ :(?:(?:active|crit|milestone), )*(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}(?:, (?=\d)|$)){2}"
)


def test_mermaid_is_a_gantt_diagram():
    """Bars for waits, a red one for what does not fit, diamonds for the deadline and the catch."""
    assert """\
gantt
    title a policy
    dateFormat YYYY-MM-DD HH:mm:ss.SSS
    axisFormat %S.%Ls
    todayMarker off
    section any failure
    retry 1 after 1s :2000-01-01 00:00:00.000, 2000-01-01 00:00:01.000
    retry 2 after 2s :2000-01-01 00:00:01.000, 2000-01-01 00:00:03.000
    retry 3 after 4s does not fit the deadline :crit, 2000-01-01 00:00:03.000, 2000-01-01 00:00:07.000
    deadline 5s :crit, milestone, 2000-01-01 00:00:05.000, 2000-01-01 00:00:05.000
    catch tidy, then every 8s until it succeeds :milestone, 2000-01-01 00:00:03.000, 2000-01-01 00:00:03.000
""" == re.sub(r"^%%.*\n", "", as_mermaid(made(MISSED)), flags=re.MULTILINE)


def test_jitter_in_mermaid_is_a_second_bar():
    """From the earliest moment to the latest."""
    assert ("    retry 2 from 4s to 8s :active, 2000-01-01 00:00:04.000, 2000-01-01 00:00:08.000\n") in as_mermaid(
        made(DRAWN)
    )


@pytest.mark.parametrize(
    "policy", [MISSED, DRAWN, RULED, HOSTILE, Policy.parse("20 1d 365250d"), Policy(attempts=None, deadline="1h")]
)
def test_mermaid_output_follows_the_grammar(policy):
    """Each line is a comment, a setting, a section or a task, and no name contains what would end it."""
    comments, diagram = as_mermaid(made(policy, title="5% #1: a; b")).split("gantt\n")
    title, _date, _axis, today, *lines = diagram.splitlines()

    assert all(line.startswith("%% ") for line in comments.splitlines())
    assert ("    title 5% 1 a b", "    todayMarker off") == (title, today)
    assert [] == [line for line in lines if not (re.fullmatch(r" {4}section [^#:;]+", line) or TASK.fullmatch(line))]


@pytest.mark.parametrize(
    ("policy", "form"),
    [("1 1s", "%S.%Ls"), ("1 11s", "%M:%S"), ("1 2h", "%H:%M"), ("1 2d", "day %j, %H:%M"), ("1 400d", "%Y-%m-%d")],
)
def test_the_axis_of_mermaid_fits_the_length(policy, form):
    """Milliseconds for short policies, dates for long ones."""
    assert f"    axisFormat {form}\n" in as_mermaid(made(Policy.parse(policy)))


def test_a_section_without_retries_is_no_section_in_mermaid():
    """Replace the section, which would be empty, by a comment."""
    drawn = as_mermaid(made(RULED))

    assert "section rule 2" not in drawn
    assert "%% rule 2 (a.B): never met: an earlier rule takes these failures\n" in drawn


# ----------------------------------------------------------------------------------------------------------------- svg


def shapes(policy: Policy) -> list[str]:
    """Return the classes of all shapes of a drawing, without texts, legend and page."""
    root = ET.fromstring(as_svg(made(policy)))  # noqa: S314 - our own
    found = [each.get("class", "") for each in root.iter() if each.tag not in {f"{SVG}text", f"{SVG}svg"}]
    return [name for name in found if name not in {"", "page", "grid"}]


@pytest.mark.parametrize(
    ("policy", "drawn"),
    [
        (MISSED, ["wait", "wait", "struck", "strike", "deadline", "catch", "wait", "struck", "deadline", "catch"]),
        (DRAWN, ["band", "wait", "hint", "band", "wait", "hint", "wait", "band", "hint"]),
        (Policy.parse("0 catch tidy"), []),
    ],
)
def test_a_drawing_has_a_shape_for_each_element(policy, drawn):
    """Draw bands below waits, lines through retries that do not fit, the deadline, the catch, and a legend."""
    assert drawn == shapes(policy)


def test_a_truncated_drawing_has_an_ellipsis():
    """Below the last bar, with an ellipsis."""
    assert ">… and so on until the deadline<" in as_svg(made(Policy(attempts=None, deadline="1h")))


def test_bars_match_the_axis():
    """Each bar begins where the one before it ended, and is as long as its wait."""
    root = ET.fromstring(as_svg(made(Policy.parse("3 1s"))))  # noqa: S314 - our own
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "wait"][:3]
    starts, widths = ([float(bar.get(name)) for bar in bars] for name in ("x", "width"))

    assert [round(widths[0] * times, 0) for times in (1, 2, 4)] == [round(width, 0) for width in widths]
    assert starts[1] == pytest.approx(starts[0] + widths[0], abs=0.2)
    assert starts[2] == pytest.approx(starts[1] + widths[1], abs=0.2)


@pytest.mark.parametrize("policy", [MISSED, DRAWN, RULED, HOSTILE, Policy(attempts=None, deadline="10s")])
def test_a_drawing_is_self_contained(policy):
    """Valid XML with a title and a description, without scripts, links or anything to load."""
    drawing = as_svg(made(policy, title='<script>alert("x")</script>'))
    root = ET.fromstring(drawing)  # noqa: S314 - our own
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}

    assert {"svg", "title", "desc", "style", "rect", "text"} <= tags <= {
        "svg", "title", "desc", "style", "rect", "text", "line", "path"
    }  # fmt: skip
    assert '<script>alert("x")</script>' == root.find(f"{SVG}title").text
    assert not re.search(r"href|url\(|@import|<script", drawing)


def test_a_drawing_follows_light_and_dark():
    """Every colour of the light scheme has one in the dark scheme, and no rule reaches out of the drawing."""
    style = ET.fromstring(as_svg(made(MISSED))).find(f"{SVG}style").text  # noqa: S314 - our own
    light, dark = style.split("@media (prefers-color-scheme: dark) {")
    rule = re.compile(r"^(\S+ \S+) \{ (.*) \}$", re.MULTILINE)
    coloured = {selector for selector, body in rule.findall(light) if "#" in body}

    assert coloured == {selector for selector, _ in rule.findall(dark)}
    assert all(selector.startswith(".redrive-plan ") for selector, _ in rule.findall(style))


@pytest.mark.parametrize(
    "policy",
    [
        Policy(attempts=9, deadline="3s", catch="tidy"),
        MISSED.with_(jitter="equal", hints="obey", deadline="1200ms"),
        MISSED.with_(attempts=None),
        Policy(attempts=None, deadline="1h"),
    ],
)
def test_all_shapes_are_inside_the_page(policy):
    """All shapes and texts begin inside the page, however many marks the legend has to explain."""
    root = ET.fromstring(as_svg(made(policy)))  # noqa: S314 - our own
    width, height = int(root.get("width")), int(root.get("height"))

    assert all(0 <= float(each.get("x", 0)) <= width for each in root.iter())
    assert all(0 <= float(each.get("y", 0)) <= height for each in root.iter())
    bars = [each for each in root.iter(f"{SVG}rect") if each.get("class") != "page"]
    assert all(float(bar.get("x")) + float(bar.get("width")) <= width for bar in bars)
