"""Ten questions of an engineer on call, in a real browser on both stores: at most three clicks from the overview each,
without scrolling at 1440x900.

``python -m tests.web.test_questions`` prints the clicks and the seconds of each. ``REDRIVE_CHROMIUM`` names the
browser, as for `tests.web.test_browser`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from redrive.clock import SystemClock
from tests.acceptance.processes import stage
from tests.debian import needed
from tests.web.site import PASSWORD, USERS, Site

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.timeout(180)]

CHROMIUM = Path(os.environ.get("REDRIVE_CHROMIUM", "/usr/bin/chromium"))

WINDOW: Final = {"width": 1440, "height": 900}

MOST: Final = 3
"""The clicks that a question may take; a search with the Enter key is one."""

INVOICE, RETRIED, ORDER = "inv-1443", "inv-3107", "order-2207"
"""A payment that died, a webhook that waits for its next attempt, and a run that waits for a signal."""

WORK = '''
"""A shop on a bad night; the processes import it as ``work``."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import redrive
from redrive.engine.counters import ErrorHour, ErrorLine, TallyRows
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, workers
from redrive.stores.query import Query, writes

app = redrive.App(Path(__file__).with_name("url").read_text())


class CardDeclined(Exception):
    """The bank said no."""


@app.task(queue="billing", retry="0", search=["invoice"])
def charge(invoice: str, amount: int) -> int:
    """Take the money for an invoice."""
    number = int(invoice[4:])
    if number % 10 == 3:
        raise CardDeclined(f"the bank declined the card of {invoice}: code {number % 97}, do not honour")
    if number % 37 == 0:
        raise TimeoutError("the gateway did not answer within 10 s")
    return amount


@app.task(queue="mail", retry="0", search=["invoice"])
def receipt(invoice: str) -> None:
    """Send a receipt."""
    if int(invoice[4:]) % 41 == 0:
        raise KeyError("address")


@app.task(queue="webhooks", retry="5 1h", search=["invoice"])
def webhook(invoice: str) -> None:
    """Tell a partner."""
    raise ConnectionError("the partner refused the connection")


@app.task(queue="imports")
def load(row: int) -> None:
    """Load a row."""


@app.task(queue="reports")
def report(customer: int) -> None:
    """Make a report."""


@app.task(queue="campaigns")
def newsletter(customer: int) -> None:
    """Write to a customer."""


@app.cron("* * * * *", overlap="allow", queue="sync")
def sync_stock() -> None:
    """Synchronise the stock."""


@app.cron("0 3 * * *")
def nightly() -> None:
    """Do nothing."""


@app.cron("0 * * * *")
def hourly() -> None:
    """Do nothing."""


@app.workflow(queue="refunds", search=["order"])
async def refund(flow: redrive.Flow, order: str, amount: int) -> bool:
    """Wait for a person."""
    return await flow.wait_for("approved", bool)


@writes
def note(rows):
    """Write the depths of queues."""
    yield Query("depths_put", many=rows)


DAY = timedelta(days=1)


def past(at):
    """Write what workers have counted before: an error that is over, and a queue that has grown within the hour."""
    five = (at - timedelta(hours=5)).replace(minute=0, second=0, microsecond=0)
    line = ErrorLine("0-old", "charge", "ERROR", "shop.Maintenance", "the bank is closed", "work.charge", five, five, 1)
    app.store.run(counters.write_counters(TallyRows((), (ErrorHour("0-old", five, 1, 900, 0),), (line,))))
    minute, rows, lag = at.replace(second=0, microsecond=0), [], {"lag": None, "lag_for": None}
    for ago in range(1, 55):
        depths = {"imports": max(0, 1480 - 27 * ago), "reports": 310, "billing": 40 + ago % 7, "webhooks": ago % 3}
        for queue, due in depths.items():
            row = {"at": minute - timedelta(minutes=ago), "queue": queue, "due": due, "later": 0, "running": 0}
            rows.append({**row, "waiting": 0, "dead": 0, "oldest_for": None, "due_capped": False, **lag})
    app.store.run(note(rows))


def fill():
    """Make thousands of jobs in many states."""
    app.open()
    served = ["billing", "mail", "webhooks", "refunds"]
    charge.enqueue_many([(f"inv-{number}", number % 900) for number in range(1000, 3000)])
    receipt.enqueue_many([f"inv-{number}" for number in range(1000, 3000)])
    webhook.enqueue_many([f"inv-{number}" for number in range(3000, 3300)])
    receipt.options(delay="1d").enqueue_many([f"inv-{number}" for number in range(1400, 1500)])
    for number in range(2000, 2250):
        refund.start(f"order-{number}", number % 300, id=f"order-{number}")
    asyncio.run(Worker(app, queues=served, until_empty=True, name="first").run())
    load.enqueue_many(range(1480))
    report.enqueue_many(range(310))
    app.queue("reports").pause(actor="dave@example.com")
    at = app.jobs.select(redrive.Filter(limit=1))[0].enqueued_at
    past(at)
    for number in range(1, 7):
        queues = served if number % 2 else ["imports", "sync", "campaigns"]
        options = {"version": redrive.__version__, "build": "2026.11.3"}
        options |= {"concurrency": 20, "lease_for": DAY, "queues": queues}
        worker = app.store.run(workers.register(f"web-{number}", **options))
        app.store.run(workers.beat(worker, DAY, loop_lag_for=timedelta(seconds=47 if number == 4 else 0)))
    asyncio.run(Worker(app, queues=["none"], until_empty=True, name="second").run())
    sync_stock.backfill(at - timedelta(hours=5), at, actor="cron")
    newsletter.options(tags=["autumn"]).enqueue_many(range(420))
    for action, tag in (("cancel", "autumn"), ("cancel", "winter")):
        newsletter.options(tags=["winter"], delay="1d").enqueue_many(range(30))
        found = app.operations.preview(action, redrive.Filter(tag=tag, limit=5000))
        app.operations.finish(app.operations.start(found, actor="erin@example.com").id)
    app.close()
'''


class Hand:
    """Asks one question with a mouse and a keyboard, from the overview on, and counts.

    Args:
        browser: the browser.
        site: the dashboard.
    """

    def __init__(self, browser: Browser, site: Site) -> None:
        self.site = site
        self.context = browser.new_context(base_url=site.url, viewport=WINDOW)  # type: ignore[arg-type]
        form = {"name": "ann", "password": PASSWORD, "next": "/workers"}
        self.context.request.post("/login", form=form, headers={"Origin": site.url})
        self.page: Page = self.context.new_page()
        self.page.goto("/")
        self.clicks = 0
        self.began = SystemClock.monotonic()
        self.seconds = 0.0

    def click(self, selector: str) -> None:
        """Click on what is in sight."""
        found = self.page.locator(selector)
        self._see(found)
        found.click()
        self.clicks += 1

    def search(self, text: str) -> None:
        """Type into the field of the search, which counts as a click together with the Enter key."""
        self.fill("header .find input", text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/find?*")
        self.clicks += 1

    def fill(self, selector: str, text: str) -> None:
        """Type into a field that is in sight."""
        found = self.page.locator(selector)
        self._see(found)
        found.fill(text)

    def reads(self, selector: str, text: str | re.Pattern[str]) -> str:
        """Read the answer, which is in sight, and stop the clock."""
        found = self.page.locator(selector)
        expect(found).to_contain_text(text)
        self._see(found)
        self.seconds = SystemClock.monotonic() - self.began
        return found.inner_text()

    def _see(self, found: Locator) -> None:
        """Demand that an element is as a whole in the window, covered by nothing, and that nothing was scrolled."""
        expect(found).to_be_visible()
        seen = found.evaluate(
            """each => {
                const box = each.getBoundingClientRect();
                const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                return [scrollX, scrollY, box.left, box.top, innerWidth - box.right, innerHeight - box.bottom,
                    each.contains(top) || Boolean(top && top.contains(each))];
            }"""
        )
        assert [0, 0] == seen[:2]
        assert min(seen[2:6]) >= 0, (self.page.url, found, seen)
        assert seen[6], (self.page.url, found, "is covered")


def _why_not_sent(hand: Hand) -> None:
    """Why was the payment of an invoice not sent?"""
    hand.search(INVOICE)
    hand.click(".jobs tr:has-text('charge') th a")
    code = int(INVOICE[4:]) % 97
    hand.reads(".answer", f"the bank declined the card of {INVOICE}: code {code}, do not honour")
    expect(hand.page.locator("main h1")).to_contain_text("charge")


def _failed_by_cause(hand: Hand) -> None:
    """What failed in the last hour, by cause?"""
    hand.click("nav >> text='Errors'")
    hand.click(".acts a:text-is('1 h')")
    hand.page.wait_for_url("**span=1h*")
    hand.reads("main .errors", "ConnectionError")
    causes = [row.locator("td, th").all_inner_texts() for row in hand.page.locator("main .errors tbody tr").all()]
    numbers = {row[0].split()[0]: row[3].strip() for row in causes}
    assert {"ConnectionError": "300", "CardDeclined": "200", "TimeoutError": "48", "KeyError": "49"} == numbers


def _redrive_an_error(hand: Hand) -> None:
    """Redrive all jobs of one error."""
    hand.click("nav >> text='Errors'")
    hand.click("main .errors tr:has-text('TimeoutError') a:has-text('Redrive all 48')")
    hand.click("main button[value=redrive]")
    hand.page.wait_for_url(re.compile(r"/operations/\d+"))
    hand.reads(".note", "operation")
    number = int(hand.page.url.rsplit("/", 1)[1])
    done = hand.site.do(lambda work: work.app.operations.finish(number))
    assert 48 == done.done
    left = hand.site.do(lambda work: work.app.jobs.stats(task="charge"))
    assert (48, 200) == (left.unfinished, left.dead)


def _stuck_worker(hand: Hand) -> None:
    """Is a worker stuck?"""
    hand.click("nav >> text='Workers'")
    hand.reads(
        "main table tr:has-text('web-4')",
        re.compile(r"stuck.*the event loop of worker \d+ \(web-4\) is blocked since 47\D*s", re.DOTALL),
    )
    assert 1 == hand.page.locator("main table .failing").count()


def _growing_queue(hand: Hand) -> None:
    """Which queue grows?"""
    hand.click("nav >> text='Queues'")
    hand.reads("main .meta", re.compile(r"imports grows: \+1,4\d\d due"))


def _who_paused(hand: Hand) -> None:
    """Who paused this queue?"""
    hand.click("nav >> text='Queues'")
    hand.click("main table th a:text-is('reports')")
    hand.page.wait_for_url("**/queues/reports")
    at = hand.site.do(lambda work: work.app.queue("reports").settings.paused_at)
    text = hand.reads(".answer", "by dave@example.com")
    assert at.strftime("%H:%M") in text


def _next_attempt(hand: Hand) -> None:
    """When is the next attempt?"""
    hand.search(RETRIED)
    hand.click(".jobs tr:has-text('webhook') th a")
    hand.page.wait_for_url("**/jobs/*")
    number = int(hand.page.url.rsplit("/", 1)[1])
    at: datetime = hand.site.do(lambda work: work.app.job(number).record.scheduled_at)
    text = hand.reads(".answer", re.compile(r"in (59\s*min|1\s*h)"))
    assert at.strftime("%H:%M") in text


def _runaway_cron(hand: Hand) -> None:
    """Stop a runaway cron and its jobs."""
    hand.click("nav >> text='Schedules'")
    hand.click("main tr:has-text('sync_stock') a:has-text('Stop')")
    hand.click("button[value=stop]")
    text = hand.reads(".note", re.compile(r"is paused, and operation \d+ cancels its jobs"))
    number = int(re.search(r"operation (\d+)", text)[1])  # type: ignore[index]
    done = hand.site.do(lambda work: work.app.operations.finish(number))
    assert 300 <= done.done
    left = hand.site.do(lambda work: work.app.jobs.select(work.redrive.Filter(state="ready", queue="sync")))
    assert () == tuple(left)
    assert hand.site.do(lambda work: work.sync_stock.state.paused_at) is not None


def _send_signal(hand: Hand) -> None:
    """Find the run that waits for a signal, and send it."""
    hand.search(ORDER)
    hand.click(f"main th a:text-is('{ORDER}')")
    hand.page.wait_for_url("**/runs/**")
    hand.reads(".answer", "It waits for the signal “approved”")
    hand.fill("main section form [name=value]", "true")
    hand.click("main button:text-is('Send approved')")
    hand.reads(".note", f"run {ORDER} has received approved")
    hand.site.do(lambda work: work.asyncio.run(work.Worker(work.app, queues=["refunds"], until_empty=True).run()))
    assert (True, 1) == hand.site.do(
        lambda work: (work.refund.run(ORDER).result(), work.app.jobs.stats(task="refund").succeeded)
    )


def _undo(hand: Hand) -> None:
    """Undo a mistaken bulk action."""
    hand.click("nav >> text='Operations'")
    hand.click("main tr:has-text('autumn') button[value=undo]")
    hand.click("#confirm button[value=yes]")
    text = hand.reads(".note", re.compile(r"undoes operation \d+"))
    number = int(hand.page.url.rsplit("/", 1)[1])
    assert text
    done = hand.site.do(lambda work: work.app.operations.finish(number))
    assert 420 == done.done
    back = hand.site.do(lambda work: work.app.jobs.select(work.redrive.Filter(tag="autumn", state="ready", limit=999)))
    assert 420 == len(back)


QUESTIONS: Final[tuple[Callable[[Hand], None], ...]] = (
    _why_not_sent,
    _failed_by_cause,
    _redrive_an_error,
    _stuck_worker,
    _growing_queue,
    _who_paused,
    _next_attempt,
    _runaway_cron,
    _send_signal,
    _undo,
)


def _ask(browser: Browser, site: Site, question: Callable[[Hand], None]) -> Hand:
    hand = Hand(browser, site)
    try:
        question(hand)
    finally:
        hand.context.close()
    return hand


@contextlib.contextmanager
def _shop(folder: Path, kind: str) -> Iterator[Site]:
    """Start a dashboard of the shop."""
    with stage(folder, kind, work=WORK) as deployment:
        (folder / "users.toml").write_text(USERS)
        filled = deployment.run(sys.executable, "-c", "import work; work.fill()")
        assert 0 == filled.ended(), filled.log.read_text()
        site = Site(deployment, users=True)
        site.start()
        site.wait()
        yield site
        site.close()


@contextlib.contextmanager
def _opened() -> Iterator[Browser]:
    needed("chromium", lambda: str(CHROMIUM) if CHROMIUM.exists() else None)
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that containers and the user root do not have.
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the browser, once."""
    with _opened() as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start a dashboard of the shop, on each store."""
    with _shop(tmp_path_factory.mktemp("shop"), request.param) as site:
        yield site


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_in_three_clicks(browser: Browser, shop: Site, question: Callable[[Hand], None]):
    """What is clicked and what answers are in the window from the overview on, and the answer is the right one."""
    assert 0 < _ask(browser, shop, question).clicks <= MOST


def main() -> None:
    """Print the clicks and the seconds of each question on each store."""
    taken: dict[str, list[Hand]] = {}
    with _opened() as opened, tempfile.TemporaryDirectory() as folder:
        for kind in ("sqlite", "postgres"):
            (Path(folder) / kind).mkdir()
            with _shop(Path(folder) / kind, kind) as site:
                for question in QUESTIONS:
                    taken.setdefault(question.__doc__ or "", []).append(_ask(opened, site, question))
    lines = ["| question | clicks | s, SQLite | s, PostgreSQL |", "| --- | ---: | ---: | ---: |"]
    for words, hands in taken.items():
        times = " | ".join(f"{each.seconds:.1f}" for each in hands)
        lines.append(f"| {words} | {max(each.clicks for each in hands)} | {times} |")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
