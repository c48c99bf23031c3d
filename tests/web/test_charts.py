"""Charts: round axes, gaps, tips, and columns that are seen."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redrive
from redrive.operate.charts import axes, plots, sparks
from redrive.operate.charts.plots import Cell
from redrive.stores.operations import workers
from redrive.testing import VirtualClock
from tests.web.client import Operator

AT = datetime(2026, 11, 28, 1, 0, tzinfo=UTC)
KYIV = ZoneInfo("Europe/Kyiv")
MINUTES = [AT + timedelta(minutes=number) for number in range(60)]


def _axis(number: int, **more: object) -> axes.Axis:
    return axes.times(MINUTES[:number], timedelta(minutes=1), UTC, **more)  # type: ignore[arg-type]


@given(st.floats(0, 1e9))
def test_the_values_of_an_axis_are_few_and_enclose_all(most: float):
    """Axes have three to five values from zero to at least the largest."""
    for found in (axes.ticks(most), axes.ticks(most, whole=True), axes.spans(most)):
        assert 0 == found[0]
        assert most <= found[-1] * (1 + 1e-9)
        assert 3 <= len(found) <= 5


@pytest.mark.parametrize(
    ("most", "values"),
    [(0, (0, 1, 2)), (2, (0, 1, 2)), (7, (0, 2.5, 5, 7.5)), (1180, (0, 500, 1000, 1500))],
)
def test_values_are_round(most: float, values: tuple[float, ...]):
    """Steps are 1, 2, 2.5 or 5 of a power of ten."""
    assert values == axes.ticks(most, whole=True)


@pytest.mark.parametrize(("most", "step"), [(9, 5), (80, 30), (700, 300), (9_000, 3600), (200_000, 86_400)])
def test_spans_are_round_in_their_own_units(most: float, step: float):
    """Steps of spans are seconds, minutes, hours or days of which clocks have marks."""
    assert step == axes.spans(most)[1]


def test_times_are_those_of_the_zone():
    """Labels and tips are in the zone of the reader; the last column is open."""
    axis = axes.times(MINUTES, timedelta(minutes=1), KYIV)

    assert ("03:00", "03:59", 60) == (axis.names[0], axis.names[-1], len(axis.names))
    assert [(0.0, "03:00"), (1.0, "04:00")] == [axis.labels[0], axis.labels[-1]]
    assert axis.is_open
    assert "28 Nov" == axes.times([AT] * 90, timedelta(days=1), UTC).names[0]


def test_a_new_build_is_marked_on_the_charts():
    """With the first start of a worker that has it; control characters of its name are escapes."""
    app = redrive.App("memory://", clock=VirtualClock(AT))
    app.open()
    for build, wait in (("1.0", "20m"), ("2\x1b.0", "20m"), ("1.0", "0s")):
        register = workers.register("w", concurrency=1, lease_for=timedelta(hours=1), build=build, now=app.now())
        app.store.run(register)
        app.clock.advance(wait)
    history = Operator(app).read("/overview?span=1h")["history"]
    html = Operator(app).get("/").text
    app.close()

    assert [("1.0", "2026-11-28T01:00:00Z"), ("2\x1b.0", "2026-11-28T01:20:00Z")] == [
        (each["build"], each["at"]) for each in history["builds"]
    ]
    assert "mark-line" in html
    assert "2\\u001b.0</text>" in html


def test_the_newest_changes_are_marked():
    """At most three changes are drawn, at their instants."""
    marks = [(MINUTES[number], f"build {number}") for number in (0, 10, 20, 30, 40)]
    axis = _axis(60, marks=marks)

    assert ["build 20", "build 30", "build 40"] == [text for _, text in axis.marks]
    assert 3 == plots.columns(axis, {"dead": [1.0] * 60}, "x").count('class="mark-line"')


def test_columns_have_their_numbers_as_tips():
    """Each column has a tip with its time and the parts that it has, and a link if it leads somewhere."""
    series = {"succeeded": [1000.0, 0.0], "dead": [1.0, 2.0]}
    drawn = plots.columns(_axis(2, paths=["/jobs?a=1&b=<", ""]), series, "a <sentence>")

    assert ["01:00: 1,000 succeeded, 1 dead", "01:01: 2 dead"] == re.findall("<title>(.*?)</title>", drawn)
    assert '<a href="/jobs?a=1&amp;b=&lt;" tabindex="-1">' in drawn
    assert 'aria-label="a &lt;sentence&gt;"' in drawn
    assert "style" not in drawn


def test_one_death_among_thousands_is_seen():
    """The smallest part of a column has a height of 1.5 pixels."""
    drawn = plots.columns(axes.categories(["a"]), {"succeeded": [100_000.0], "dead": [1.0]}, "x")

    assert "v1.5h" in re.search('<path d="([^"]*)" class="f-dead"', drawn)[1]  # type: ignore[index]


def test_missing_values_are_gaps():
    """Lines end where nothing is known, and a value alone is a line of its own width."""
    values = [1.0, 2.0, None, 3.0, None]
    drawn = plots.lines(_axis(5), {"p95": values}, "x")

    assert [[(0, 1.0), (1, 2.0)], [(3, 3.0)]] == plots.runs(values)
    assert 2 == drawn.count('class="l l-p95"')
    assert "01:02: \N{EN DASH} p95" in drawn
    assert "M3 " in drawn


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [None, None]])
def test_empty_charts_are_drawn(values: list[float | None]):
    """Without values there is an axis, and no line."""
    axis = _axis(len(values))
    assert "<figure" in plots.area(axis, "due", values, "x", limit=5)
    assert "<figure" in plots.columns(axis, {"dead": [each or 0.0 for each in values]}, "x", values=True)
    assert "<svg" in sparks.line("due", values)
    assert "<svg" in sparks.bars("dead", [each or 0.0 for each in values], "x")


def test_limits_within_the_axis_are_drawn():
    """The line of a limit is left out if it is above all values."""
    assert 1 == plots.area(_axis(1), "dead", [10.0], "x", limit=5).count('class="limit"')
    assert 0 == plots.area(_axis(1), "dead", [10.0], "x", limit=50).count('class="limit"')


def test_strips_show_what_did_not_simply_succeed():
    """A skipped occurrence has an icon and no column."""
    cells = [
        Cell("succeeded", 5.0, "ok"),
        Cell("dead", 1.0, "died", "dead"),
        Cell("cancelled", None, "skipped", "cancelled"),
    ]
    drawn = plots.strip(axes.categories(["Mon", "Tue", "Wed"]), cells, "x", "/icons.svg")

    assert ["/icons.svg#dead", "/icons.svg#cancelled"] == re.findall('use href="([^"]*)"', drawn)
    assert 0 == drawn.count('class="f-cancelled"')
    assert ["Mon: ok", "Tue: died", "Wed: skipped"] == re.findall("<title>(.*?)</title>", drawn)


def test_small_columns_are_pooled():
    """At most 24 columns are drawn in a row of a table, with the sums of their neighbours."""
    assert 20 == sparks.bars("ended", [1.0] * 60, "x").count("z")
    assert 24 == sparks.bars("ended", [1.0] * 24, "x").count("z")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0"), (0.04, "40 ms"), (4.9, "4.9 s"), (848, "14 min 8 s"), (90_000, "1 d 1 h")]
)
def test_spans_have_spaces_before_their_units(seconds: float, text: str):
    """Units stand behind a space at which no line breaks."""
    assert text == axes.took(seconds).replace("\N{NO-BREAK SPACE}", " ")
