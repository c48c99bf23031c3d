"""The playground: what it shows of a policy, and where the mistake is in a text that is none."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest

import redrive
from redrive.operate.playground import EXAMPLES
from redrive.testing import VirtualClock
from redrive.web import NoAuth, create_app
from tests.web.client import Client


@pytest.fixture
def client() -> Iterator[Client]:
    """Return a client of a dashboard without jobs."""
    app = redrive.App("memory://", clock=VirtualClock())
    app.open()
    yield Client(create_app(app, auth=NoAuth()))
    app.close()


def _shown(client: Client, **given: str) -> list[dict[str, Any]]:
    response = client.get("/api/v1/playground", params=given)
    assert 200 == response.status_code, response.text
    return response.json()["policies"]


def test_a_directive_has_its_table_and_its_sentence(client: Client):
    """Each retry of a directive has its wait and its time, and the worst case is a sentence."""
    (found,) = _shown(client, p="5 1s catch x")
    (section,) = found["sections"]

    assert ("retry", "5 1s catch x") == (found["kind"], found["title"])
    assert [(1, "1s", "1s"), (2, "2s", "3s"), (3, "4s", "7s"), (4, "8s", "15s"), (5, "16s", "31s")] == [
        (each["number"], each["wait"], each["at"]) for each in section["retries"]
    ]
    assert [16.0] * 3 == section["retries"][4]["wait_seconds"]
    assert "at most 31s of waiting" in found["sentences"][0]
    assert "catch x: after the last failure" in found["sentences"][1]


def test_the_page_has_the_picture_without_styles(client: Client):
    """Pictures take their colours from the style sheet, because the page allows no style inside."""
    text = client.get("/playground?p=5+1s+catch+x").text

    assert '<svg xmlns="http://www.w3.org/2000/svg" class="redrive-plan"' in text
    assert "<style" not in text
    assert "redrive plan &#39;5 1s catch x&#39;" in text


def test_policies_as_json_and_in_english_are_read(client: Client):
    """Refresh policies in English have their sentences, next times and simulated attempts; JSON is a retry policy."""
    document = json.dumps(redrive.Policy.parse("2 1s").to_dict())
    english, other = _shown(client, p="Refresh every 2 hours\nRetry 2 times every 5 minutes", p2=document)

    assert ("refresh", "retry") == (english["kind"], other["kind"])
    assert "Refresh every 2 hours" == english["sentences"][0]
    assert 5 == len(english["next"])
    assert ["Refresh", "Retry 1", "Retry 2"] == [each["name"] for each in english["attempts"]][:3]
    assert 2 == len(other["sections"][0]["retries"])
    assert "redrive-refresh" in english["picture"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 1s ctch x", "    5 1s ctch x\n         ^ write"),
        ("Refresh every 2 hors", "Refresh every 2 hors\n              ^"),
        ('{"version": 1,}', "cannot be read"),
        ("@/etc/passwd", "not"),
        ("x" * 2001, "at most 2000 characters"),
    ],
)
def test_wrong_texts_are_shown_with_a_caret(client: Client, text: str, expected: str):
    """Texts that cannot be read are kept, and the problem names its place; no file is read."""
    response = client.get("/api/v1/playground", params={"p": text})
    (found,) = response.json()["errors"]
    page = client.get("/playground", params={"p": text})

    assert (400, 400) == (response.status_code, page.status_code)
    assert "p" == found["path"]
    assert expected in found["message"]
    assert text[:2000] in html.unescape(page.text)
    assert "root:" not in response.text + page.text


@pytest.mark.parametrize(
    "text", ["999999999999999 1ms", "1000000 1s 1h", "every second; allow 10 hours", "Refresh every day"]
)
def test_pages_are_bounded(client: Client, text: str):
    """Policies without an end show their first retries only."""
    (found,) = _shown(client, p=text)

    assert all(len(each["retries"]) <= 20 for each in found["sections"])
    assert len(found["attempts"]) <= 20


def test_examples_can_be_read(client: Client):
    """Each example of the empty page is a policy."""
    assert "Try one of these" in client.get("/playground").text
    assert ["retry", "retry", "retry", "refresh"] == [_shown(client, p=each)[0]["kind"] for each in EXAMPLES]
