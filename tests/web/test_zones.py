"""The zone of a viewer, and the words for an instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import redrive
from redrive.web import NoAuth, create_app, zones
from tests.web.client import Client

AT = datetime(2026, 11, 28, 1, 11, 4, 500_000, tzinfo=UTC)
KYIV = zones.zone_of("Europe/Kyiv") or zones.UTC


@pytest.mark.parametrize("name", ["", "Europe", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "x" * 61, "\0"])
def test_names_that_are_no_zones_are_none(name: str):
    """Folders, paths and unknown names are no zones."""
    assert zones.zone_of(name) is None


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (AT, "03:11:04"),
        (AT - timedelta(hours=4), "Fri 27 Nov, 23:11"),
        (AT - timedelta(days=365), "2025-11-28 03:11"),
    ],
)
def test_an_instant_has_the_date_if_it_is_not_of_this_day(instant: datetime, text: str):
    """Days and years are those of the zone."""
    assert text == zones.short(instant, KYIV, AT)


def test_an_exact_instant_is_in_utc_and_in_the_zone():
    """The tip of a time has both, and UTC once."""
    assert "2026-11-28 01:11:04.500000 UTC, 2026-11-28 03:11:04 Europe/Kyiv" == zones.exact(AT, KYIV)
    assert "2026-11-28 01:11:04.500000 UTC" == zones.exact(AT, zones.UTC)
    assert "+02:00" == zones.offset(AT, KYIV)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s ago"), (-59.9, "59 s ago"), (-60, "1 min ago"), (-7200, "2 h ago"), (0.2, "in 1 s"), (90_000, "in 1 d")],
)
def test_distances_are_in_one_unit(seconds: float, text: str):
    """What is past is rounded down, and what is to come is rounded up."""
    assert text == zones.ago(AT + timedelta(seconds=seconds), AT).replace("\N{NO-BREAK SPACE}", " ")


def test_the_zone_is_chosen_by_a_form():
    """The choice is kept in a cookie, changes the times of pages, and leads back to the page of this site."""
    app = redrive.App("memory://")
    app.open()
    client = Client(create_app(app, auth=NoAuth()), {"Origin": "http://localhost"})
    answer = client.post("/zone", data={"zone": "Europe/Kyiv", "next": "/jobs?q=state%3Adead"})

    assert (303, "/jobs?q=state%3Adead") == (answer.status_code, answer.headers["location"])
    assert "Times in Europe/Kyiv" in client.get("/").text
    assert "/" == client.post("/zone", data={"zone": "UTC", "next": "//evil.example"}).headers["location"]
    assert "Times in UTC" in client.get("/").text
    assert 400 == client.post("/zone", data={"zone": "Mars/Olympus"}).status_code
    app.close()
