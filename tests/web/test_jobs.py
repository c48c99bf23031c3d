"""The pages of jobs, of one job and of one error: what they have in common, what happens next, and ticked jobs."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest

import redrive
from redrive.operate.filters import chips
from redrive.runtime.worker import Worker
from tests.web.client import Operator


class _Refused(Exception):
    """The bank refuses."""


@pytest.fixture
def shop() -> Iterator[redrive.App]:
    """Return an App with dead, retrying and succeeded jobs of two tasks on two queues."""
    app = redrive.App("memory://")

    @app.task(queue="bank", retry="1 1ms")
    def charge(order: str) -> None:
        """Fail for all orders but one."""
        if order != "good":
            raise _Refused(f"the bank refuses {order}\nsecond line")

    @app.task(queue="mail", retry="3 1h")
    def send(to: str) -> None:
        """Time out."""
        raise TimeoutError("no answer")

    app.open()
    for number in range(3):
        charge.enqueue(f"order-{number}")
    charge.enqueue("good")
    send.enqueue("ann")
    for _ in range(2):
        asyncio.run(Worker(app, until_empty=True).run())
    yield app
    app.close()


def test_a_list_shows_what_its_jobs_share(shop: redrive.App):
    """Tasks, queues, errors, attempts and times are counted, and each leads to its jobs."""
    found = Operator(shop).read("/jobs")["facets"]

    assert {"value": 5, "capped": False} == found["jobs"]
    assert [("charge", 4, "task:charge"), ("send", 1, "task:send")] == [
        (each["name"], each["jobs"], each["q"]) for each in found["tasks"]
    ]
    assert [("bank", 4), ("mail", 1)] == [(each["name"], each["jobs"]) for each in found["queues"]]
    assert [("charge: the bank refuses order-2", 3), ("send: no answer", 1)] == [
        (each["name"], each["jobs"]) for each in found["errors"]
    ]
    assert ([0, 2, 3, 0], 5) == (found["tries"][:4], sum(found["times"]))
    assert found["errors"][0]["group"] == Operator(shop).read("/errors?task=charge")["items"][0]["id"]


def test_tabs_keep_the_other_words(shop: redrive.App):
    """Each state is a filter with the other words; numbers are there where they are those of the filter."""
    operator = Operator(shop)
    some = {each["name"]: each for each in operator.read("/jobs?q=state:dead+caught:no+skipped:no+queue:bank")["tabs"]}
    other = {each["name"]: each for each in operator.read("/jobs?q=task:charge+hold:retry")["tabs"]}

    assert ({"state:dead", "queue:bank", "caught:no", "skipped:no"}, {"value": 3, "capped": False}, True) == (
        set(some["dead"]["q"].split()),
        some["dead"]["jobs"],
        some["dead"]["current"],
    )
    assert ["retrying"] == [name for name, each in other.items() if each["current"]]
    assert {None} == {each["jobs"] for each in other.values()}
    assert "queue:bank" == some["all"]["q"]


def test_the_title_of_a_list_is_its_answer(shop: redrive.App):
    """A list says how many match, and an empty one what was searched and how to go on."""
    operator = Operator(shop)
    some, none = (operator.get(f"/jobs?q=state:dead+caught:no+skipped:no{more}").text for more in ("", "+task:send"))

    assert "<h1>3 dead jobs</h1>" in some
    assert "Redrive all 3 …" in some
    assert "<h1>No dead job</h1>" in none
    assert "All jobs were searched" in none
    assert 'href="/jobs?q=state%3Adead+caught%3Ano+skipped%3Ano">Without task:send' in none


def test_the_next_page_of_a_list_keeps_its_filter(shop: redrive.App):
    """Addresses with several parameters are escaped once."""
    text = Operator(shop).get("/jobs?q=task:charge&limit=2").text

    assert 'rel="next" href="/jobs?q=task%3Acharge&amp;before=3"' in text
    assert "&amp;amp;" not in text + Operator(shop).get("/errors?dead=1&span=24h").text


def test_ticked_jobs_are_the_filter_of_a_preview(shop: redrive.App):
    """The form of a list sends the ids of the ticked jobs, also without JavaScript."""
    page = Operator(shop).get("/operations/preview?id=1&id=3&action=redrive").text

    assert "Redrive 2 jobs?" in page
    assert 'name="q" value="id:1,3"' in page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("state:dead", [("state:", "dead", "")]),
        (
            'state:dead -task:a error:"x y" inv-1',
            [
                ("state:", "dead", '-task:a error:"x y" inv-1'),
                ("-task:", "a", 'state:dead error:"x y" inv-1'),
                ("error:", "x y", "state:dead -task:a inv-1"),
                ("", "inv-1", 'state:dead -task:a error:"x y"'),
            ],
        ),
    ],
)
def test_each_word_of_a_filter_can_be_taken_away(text: str, expected: list[tuple[str, str, str]]):
    """Chips have a word, its value, and the filter without it."""
    assert expected == [(each.word, each.value, each.without) for each in chips(text)]


def test_a_dead_job_says_what_became_of_it_and_whether_it_is_alone(shop: redrive.App):
    """The page names the attempts, the jobs with the same error, the policy and the frames of its own code."""
    operator = Operator(shop)
    data, text = operator.read("/jobs/1"), operator.get("/jobs/1").text

    assert data["title"].startswith("It gave up after 2 attempts, in ")
    assert ({"value": 3, "capped": False}, None, "1 1ms") == (data["same"], data["unsure"], data["directive"])
    assert "2 other dead jobs of the same error" in text
    assert f"/playground?p={quote('1 1ms')}" in text
    assert "<b>_Refused</b>: the bank refuses order-0" in text
    assert re.search(r"test_jobs\.py <b>charge</b> line \d+", text)
    assert "Traceback as of attempt 2." in text


def test_a_job_says_when_its_next_attempt_starts_and_what_may_have_happened(shop: redrive.App):
    """A job that waits has its next attempt in the answer; a call without an answer may have taken effect."""
    operator = Operator(shop)
    data, text = operator.read("/jobs/5"), operator.get("/jobs/5").text

    assert "Attempt 2 starts" == data["title"]
    assert "attempt 1 failed after its request was sent, before an answer came" == data["unsure"]
    assert re.search(r"Attempt 2 starts <time[^>]*>in \d+.(min|h)</time></h2>", text)
    assert "It <b>may have taken effect</b>" in text
    assert 'class="next"' in text


def test_what_people_did_with_a_job_is_on_its_page(shop: redrive.App):
    """Actions on one job are listed with their actor."""
    operator = Operator(shop)
    assert [] == operator.read("/jobs/5")["acts"]
    operator.act("/jobs/5", action="cancel")
    acts = operator.read("/jobs/5")["acts"]

    assert [("cancel", "local via web")] == [(each["action"], each["actor"]) for each in acts]
    assert "local via web: cancel" in operator.get("/jobs/5").text
    assert "It was cancelled after 1 attempt" in operator.get("/jobs/5").text


def test_a_bulk_operation_is_on_the_page_of_each_of_its_jobs(shop: redrive.App):
    """The line has the operation and its reason."""
    operator = Operator(shop)
    shop.jobs.cancel(redrive.Filter(ids=(5, 6)), why="wrong prices", actor="ann")
    acts = operator.read("/jobs/5")["acts"]

    assert [("cancel", "ann")] == [(each["action"], each["actor"]) for each in acts]
    assert "ann: cancel, wrong prices" in operator.get("/jobs/5").text


def test_a_trace_a_tag_and_progress_are_of_one_job(shop: redrive.App):
    """What belongs to a job is read in one statement, and is nothing of another job."""
    task = shop.tasks["send"]
    tagged, plain = task.options(tags=["b", "a"], delay=timedelta(days=1)).enqueue("x"), task.enqueue("y")
    operator = Operator(shop)

    assert (["a", "b"], []) == tuple(operator.read(f"/jobs/{each.id}")["tags"] for each in (tagged, plain))


def test_an_error_says_whether_it_goes_on_and_what_its_jobs_share(shop: redrive.App):
    """The page of an error has its newest failure with its traceback, and the attempts at which jobs die."""
    operator = Operator(shop)
    (group,) = operator.read("/errors?task=charge")["items"]
    data, text = operator.read(f"/errors/{group['id']}"), html.unescape(operator.get(f"/errors/{group['id']}").text)

    assert "It still happens: 6 failures in this hour" in text
    assert "Redrive all 3 …" in text
    assert (2, "_Refused") == (data["failure"]["number"], data["failure"]["error_type"].rpartition(".")[2])
    assert [0, 0, 3] == data["facets"]["tries"][:3]
    assert "the bank refuses order-" in text


def test_the_errors_have_one_button_each(shop: redrive.App):
    """Each error with dead jobs leads to the preview of a redrive of all of them."""
    operator = Operator(shop)
    (group,) = operator.read("/errors?task=charge")["items"]
    text = html.unescape(operator.get("/errors").text)

    assert "<h1>2 errors</h1>" in text
    assert 1 == text.count("Redrive all 3 …")
    preview = operator.get(f"/operations/preview?action=redrive&q=state:dead+caught:no+group:{group['id']}&rate=100/s")
    assert "Redrive 3 jobs?" in preview.text


def test_a_task_has_its_durations(shop: redrive.App):
    """The pages of tasks show what ended within the span, with a histogram of durations."""
    operator = Operator(shop)
    data, page = operator.read("/tasks/charge"), operator.get("/tasks/charge?span=8h").text
    listed = {each["name"]: each["pace"] for each in operator.read("/tasks")["items"]}

    assert (7, 1, 3) == (
        sum(data["task"]["pace"]["took"]),
        data["task"]["pace"]["ended"]["succeeded"],
        data["task"]["pace"]["ended"]["died"],
    )
    assert listed["charge"] == data["task"]["pace"]
    assert "half of them at most" in page
    assert "in the last 8 hours" in page
