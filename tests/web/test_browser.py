"""The dashboard in a real browser: real server processes on SQLite and on PostgreSQL, and Chromium.

``REDRIVE_CHROMIUM`` names the browser; without it, it is Debian's, which is installed where that is possible.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.core.handlers.asgi import ASGIHandler
from django.test import override_settings
from django.urls import path as route
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

import redrive
from redrive.clock import SystemClock
from redrive.engine.explain import span
from redrive.operate.table import ROWS
from redrive.web import Account, Role, Users, create_app, hash_password
from redrive.web.django import dashboard
from tests.contrib.django.project import ready
from tests.debian import needed
from tests.selection import ALL
from tests.web.served import served
from tests.web.site import DEAD, FLAKY, LONG, PASSWORD, Site, sites

# Chromium has a clock of its own; once it did not close a page for five minutes.
pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.timeout(180)]

CHROMIUM = Path(os.environ.get("REDRIVE_CHROMIUM", "/usr/bin/chromium"))

EXAMPLES = {
    "/jobs/{id}": f"/jobs/{DEAD}",
    "/workers/{id}": "/workers/1",
    "/errors/{group}": "/errors/other",
    "/operations/preview": "/operations/preview?action=redrive&q=state:dead",
    "/operations/{id}": "/operations/1",
    "/problems/{name}": "/problems/JobNotFound",
    "/tasks/{name:path}": "/tasks/charge",
    "/queues/{name:path}": "/queues/mail/out",
    "/runs/{workflow}/{run:path}": "/runs/checkout/order/1",
    "/machines/{machine}": "/machines/payment",
    "/machines/{machine}/{key:path}": "/machines/payment/card",
    "/topics/{topic}/{subscription}": "/topics/receipts/send",
    "/topics/{topic}/{subscription}/move": "/topics/receipts/send/move?to=beginning",
    "/schedules/{name}": "/schedules/table",
    "/schedules/{name}/calendar": "/schedules/nightly/calendar",
    "/schedules/{name}/item": "/schedules/table/item?key=key/1",
}
"""An address of each page with variable parts in its path."""

HOSTILE = [
    f"/jobs/{LONG}",
    f"/queues/{'q' * 100}",
    "/runs/checkout/order/1?step=1",
    "/machines/payment/cash/2",
    f"/find?q={'k' * 200}",
    f"/jobs?q=tag:{'t' * 60}+-error:{'e' * 300}",
]
"""Addresses of pages with long keys, names and texts."""

REFUSED = ["/jobs?q=staet:dead", "/find?q=staet:dead", "/nothing", "/jobs/999999"]
"""Addresses of refusals."""

PATIENCE = 60_000
"""Milliseconds after which the browser gives up."""

SOON = 4.0
"""Seconds within which an open page shows a change."""

FIRST, SENT, LATER = 190, 110, 20
"""Kilobytes of a page: on a first visit, as they are and as they are sent, and sent on a later one."""

WIDTHS = (195, 390, 720, 1440)
"""Pixels of a window: of a phone and of a screen, and the halves of these, which are a zoom of 200 %."""

STICKING_OUT = """() => {
    const root = document.documentElement, out = each => each.getBoundingClientRect().right > root.clientWidth;
    const open = [...document.querySelectorAll("body *")].filter(each => !each.closest(".scroll") && out(each));
    const shown = [root.scrollWidth, ...open.map(each => each.outerHTML.slice(0, 80))];
    return root.scrollWidth > root.clientWidth ? shown : [];
}"""
"""Return the width of a page that is wider than its window, and the elements that stick out."""

STANDARDS = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


def _pages(*, full: bool) -> list[str]:
    """Return an address of each page of the table of routes; on an empty site those without variable parts."""
    paths = [EXAMPLES.get(each.path, each.path) for each in ROWS if each.template is not None]
    missing = [path for path in paths if "{" in path]
    assert [] == missing, "add an address to EXAMPLES, and its data to tests/web/site.py"
    return (
        [*paths, "/jobs?q=state:dead", f"/jobs/{FLAKY}", *HOSTILE]
        if full
        else [p for p in paths if p not in EXAMPLES.values()]
    )


class Visitor:
    """A browser with one user of one dashboard.

    Args:
        browser: the browser.
        site: the dashboard.
        user: the name; every user has the same password.
        settings: of the context, such as ``java_script_enabled``.
    """

    def __init__(self, browser: Browser, site: Site, user: str = "ann", **settings: Any) -> None:
        self.site = site
        self.context = browser.new_context(base_url=site.url, **settings)
        self.context.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        if site.users:
            form = {"name": user, "password": PASSWORD, "next": "/workers"}
            answer = self.context.request.post("/login", form=form, headers={"Origin": site.url})
            assert "/workers" in answer.url

    def open(self, path: str, status: int = 200) -> Page:
        """Open a page in a new tab, and note what the browser complains of."""
        page = self.context.new_page()
        page.on("console", lambda message: self._complain(message.type in {"error", "warning"}, message.text))
        page.on("pageerror", lambda error: self._complain(True, str(error)))
        page.on("dialog", lambda dialog: (self._complain(True, dialog.message), dialog.dismiss()))
        page.on("request", lambda sent: self._complain(not sent.url.startswith(self.site.url), sent.url))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error(e.violatedDirective, e.blockedURI))"
        )
        answer = page.goto(path)
        assert answer is not None
        assert status == answer.status, path
        return page

    def _complain(self, is_wrong: bool, text: str) -> None:
        if is_wrong:
            self.complaints.append(text)


@pytest.fixture(scope="module")
def dashboards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """Start the dashboards, for which there must be a browser."""
    needed("chromium", lambda: str(CHROMIUM) if CHROMIUM.exists() else None)
    with sites(tmp_path_factory.mktemp("web")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(dashboards: dict[str, Site]) -> Iterator[Browser]:
    """Start the browser, once. Its event loop lives in this thread until the last test of this file."""
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that containers and the user root do not have.
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Open contexts of the browser, which end with the test."""
    opened: list[BrowserContext] = []

    def visitor(site: Site, user: str = "ann", **settings: Any) -> Visitor:
        """Open a context."""
        found = Visitor(browser, site, user, **settings)
        opened.append(found.context)
        return found

    yield visitor
    for each in opened:
        each.close()


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, dashboards: dict[str, Site]) -> Site:
    """Return a full dashboard, on each database."""
    return dashboards[request.param]


@pytest.fixture
def full(dashboards: dict[str, Site]) -> Site:
    """Return a full dashboard, where the database makes no difference."""
    return dashboards["sqlite"]


Visit = Callable[..., Visitor]


def _until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    before = SystemClock.monotonic()
    while not holds():
        assert SystemClock.monotonic() - before < PATIENCE / 1000, page.locator("main").inner_text()
        page.wait_for_timeout(50)


def _rows(page: Page) -> list[str]:
    return page.locator(".jobs tbody th").all_inner_texts()


# --------------------------------------------------------------------------------------------------------- all pages


def test_no_page_breaks_its_policy_or_its_window(visit: Visit, site: Site):
    """On each page hostile texts run nothing, the strict policy blocks nothing, no other server is asked, and no page
    is wider than windows of 1440 and 390 pixels, also at a zoom of 200 %: long words are broken, and tables scroll by
    themselves."""
    visitor = visit(site)
    page = visitor.open("/")
    wide = {}
    for path in _pages(full=True):
        page.goto(path)
        expect(page.locator("#keys")).to_be_visible()
        assert page.evaluate("document.querySelector('script:not([src]), img') === null"), path
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            wide[path, width] = page.evaluate(STICKING_OUT)

    assert [] == visitor.complaints
    assert {} == {place: elements for place, elements in wide.items() if elements}


def _weighed(page: Page, path: str) -> tuple[float, float]:
    """Return the kilobytes of a page with its assets, as they are and as they came over the network."""
    page.goto(path, wait_until="load")
    page.evaluate("document.fonts.ready.then(() => 0)")
    sizes = page.evaluate(
        """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
            .map(each => [each.name, each.decodedBodySize, each.transferSize])"""
    )
    assert any(name.endswith("/inter.woff2") for name, *_ in sizes)
    return sum(each[1] for each in sizes) / 1000, sum(each[2] for each in sizes) / 1000


def test_pages_are_light(visit: Visit, full: Site):
    """A first visit has at most 190 kB with its fonts, of which 110 kB are sent; a later one sends at most 20 kB."""
    heavy = {}
    visitor = visit(full)
    # What a page reads again is no visit.
    visitor.context.add_init_script("localStorage['redrive-live'] = 'off'")
    first, later = visitor.context.new_page(), visitor.context.new_page()
    visitor.context.new_cdp_session(first).send("Network.setCacheDisabled", {"cacheDisabled": True})
    for path in ("/workers", *_pages(full=True)):
        (weight, sent), (_, again) = _weighed(first, path), _weighed(later, path)
        if weight > FIRST or sent > SENT or (again > LATER and path != "/workers"):
            heavy[path] = (weight, sent, again)

    assert {} == heavy


def test_pages_have_their_own_fonts_or_those_of_the_machine(visit: Visit, full: Site):
    """Without the fonts, texts have those of the machine, and nothing is missing."""
    visitor = visit(full)
    visitor.context.route("**/*.woff2", lambda route: route.abort())
    page = visitor.context.new_page()
    page.goto("/queues")
    expect(page.locator("h1")).to_be_visible()
    fonts = page.evaluate("getComputedStyle(document.body).fontFamily")

    assert re.search(r"Inter,.*(system-ui|sans-serif)", fonts)
    assert 0 < page.locator("h1").bounding_box()["width"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["sqlite", "empty"])
def test_every_page_is_accessible(visit: Visit, dashboards: dict[str, Site], name: str):
    """Axe finds no violation of WCAG 2.2 AA and good practice: wide and light, narrow and dark, full and empty."""
    page = visit(dashboards[name], bypass_csp=True).open("/")
    found = []
    looks = [("light", 1280), ("dark", 390)]
    for number, path in enumerate([*_pages(full=name != "empty"), *REFUSED]):
        page.goto(path)
        # All pages have one style sheet, so that `make test` looks at each of them once, in turn wide and narrow.
        for scheme, width in looks if ALL else [looks[number % 2]]:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.set_viewport_size({"width": width, "height": 800})
            result = Axe().run(page, options={"runOnly": STANDARDS, "resultTypes": ["violations"]})
            found += [
                (path, scheme, each["id"], [node["html"][:120] for node in each["nodes"]])
                for each in result.response["violations"]
            ]

    assert [] == found


@pytest.mark.parametrize(
    ("path", "link"),
    [
        (EXAMPLES["/topics/{topic}/{subscription}/move"], "Do not move"),
        (EXAMPLES["/operations/preview"], "Change nothing"),
    ],
)
def test_links_beside_buttons_are_level_with_them(visit: Visit, full: Site, path: str, link: str):
    """The link that leaves a confirmation has the same middle as its button."""
    page = visit(full).open(path)
    boxes = [page.get_by_text(link).bounding_box(), page.locator("main button[name=action]").bounding_box()]
    first, second = (each["y"] + each["height"] / 2 for each in boxes if each is not None)

    assert abs(first - second) < 1


def test_numbers_of_rows_are_not_broken(visit: Visit, full: Site):
    """The number and the state of a job keep their words whole in a narrow window."""
    page = visit(full, viewport={"width": 390, "height": 800}).open("/jobs?q=-tag:many")
    page.click("#live")
    row = page.locator(".jobs tbody tr").first.evaluate(
        "row => [...row.querySelectorAll('th a, .badge')].map(each => each.getClientRects().length)"
    )

    assert [1, 1] == row


def test_first_columns_stay_in_sight_on_narrow_screens(visit: Visit, full: Site):
    """Tables that are scrolled to their end still name their rows, and nothing shines through the names."""
    page = visit(full, viewport={"width": 360, "height": 800}).open("/queues")
    table = page.locator(".scroll:has(tbody)").first
    table.evaluate("each => each.scrollLeft = 10000")
    name = table.locator("tbody th").first

    assert table.evaluate("each => each.scrollLeft") > 100
    assert 0 <= name.bounding_box()["x"] < 20  # type: ignore[index]
    assert "rgba(0, 0, 0, 0)" != name.evaluate("each => getComputedStyle(each).backgroundColor")


def _refresh(page: Page) -> None:
    """Let the page read itself again, as after a change."""
    with page.expect_response(page.url):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(200)


def test_a_refresh_changes_a_page_in_place(visit: Visit, full: Site):
    """The place to which a reader has scrolled a table, and what is open, stay when the page is read again."""
    page = visit(full, viewport={"width": 360, "height": 800}).open("/queues")
    table = page.locator(".scroll:has(tbody)").first
    scrolled = table.evaluate("each => { each.scrollLeft = 10000; return each.scrollLeft }")
    _refresh(page)

    assert scrolled > 100
    assert scrolled == table.evaluate("each => each.scrollLeft")
    assert 1 == page.locator("#content").count()

    page.goto("/jobs/2")
    details = page.locator("#content details").first
    details.evaluate("each => each.open = true")
    _refresh(page)

    assert details.evaluate("each => each.open")


# -------------------------------------------------------------------------------------------------- without JavaScript


def test_reading_and_acting_work_without_javascript(visit: Visit, site: Site):
    """Each page is complete, and jobs and queues are changed by plain forms."""
    page = visit(site, java_script_enabled=False).open("/")
    for path in _pages(full=True):
        page.goto(path)
        assert page.locator("h1").inner_text(), path
        assert not page.locator(".script").filter(visible=True).count(), path

    page.goto("/jobs/2")
    page.click("button[value=retry]")
    expect(page.locator(".note")).to_have_text("job 2 is due now")
    page.goto("/queues/shelf")
    page.click("button[value=pause]")
    expect(page.locator("main")).to_contain_text("Paused since")
    page.goto("/jobs?q=state:dead+id:4,6,7")
    page.click("#acts summary")
    page.click("#acts button[value=redrive]")
    expect(page.locator("h1")).to_have_text("Redrive 2 jobs?")
    page.click("button[value=redrive]")
    expect(page.locator(".note")).to_have_text("operation 2 is running")
    site.do(lambda work: work.app.operations.finish(2))
    page.reload()
    expect(page.locator(".answer")).to_contain_text("2 jobs changed, 0 kept, of 2")

    assert ["ready"] * 3 == site.do(lambda work: [work.app.job(number).state.value for number in (2, 4, 6)])


# --------------------------------------------------------------------------------------------------------------- a job


def test_pages_programs_and_the_command_line_show_the_same_numbers(visit: Visit, site: Site):
    """Three failed attempts have the same durations, delays and rules in picture, table, JSON and command line."""
    visitor = visit(site)
    page = visitor.open(f"/jobs/{FLAKY}")
    page.click(".as-table summary")
    table = [row.locator("td, th").all_inner_texts() for row in page.locator("tbody tr").all()]
    picture = page.locator(".lane li svg").get_attribute("aria-label") or ""
    tips = [each.inner_html() for each in page.locator(".lane .rest").locator("xpath=..").locator("title").all()]
    data = visitor.context.request.get(f"/api/v1/jobs/{FLAKY}").json()["attempts"]
    command = [sys.executable, "-m", "redrive", "jobs", "show", "work:app", str(FLAKY), "--json"]
    printed = subprocess.run(command, cwd=site.deployment.folder, capture_output=True, check=True, text=True).stdout
    history = json.loads(printed)["attempts"]

    ran = [span(timedelta(seconds=each["took_seconds"])) for each in data]
    waits = [span(timedelta(seconds=each["waits_seconds"])) for each in data]
    rules = [each["rule"] for each in data]
    assert (["20ms", "40ms", "1h"], ["backoff", "backoff", "hint"]) == (waits, rules)
    plain = [[cell.replace("\N{NO-BREAK SPACE}", "").replace("min", "m") for cell in row] for row in table]
    assert (ran, waits) == ([row[2] for row in plain], [row[5] for row in plain])
    plainly = picture.replace("\N{NO-BREAK SPACE}", "").replace("min", "m")
    assert ran == re.findall(r"attempt \d ran (\S+):", plainly)
    expected = [f"delay {wait}, chosen by {rule}" for wait, rule in zip(waits, rules, strict=True)]
    assert expected == [tip.replace("&nbsp;", "").partition(";")[0] for tip in tips]
    assert data == history
    assert [(each["number"], each["rule"], each["waits_seconds"]) for each in history] == [
        (1, "backoff", 0.02), (2, "backoff", 0.04), (3, "hint", 3600.0)
    ]  # fmt: skip
    assert re.fullmatch(r"in 5\d\smin", page.locator("main time[data-relative]").first.inner_text())


@pytest.mark.realtime
def test_countdowns_reach_zero_with_the_start(visit: Visit, full: Site):
    """Countdowns end within a second of the real start, though the browser's clock is 90 seconds fast."""
    visitor = visit(full)
    visitor.context.add_init_script(
        "const now = Date.now; Date.now = () => now() + 90000; localStorage['redrive-live'] = 'off'"
    )
    job = full.do(lambda work: work.soon.options(delay="3s").enqueue(1))
    page = visitor.open(f"/jobs/{job.id}")
    ended = page.evaluate(
        """patience => new Promise((done, fail) => {
            const ends = each => each.textContent.endsWith("ago") && done(new Date().getTime());
            setInterval(() => document.querySelectorAll(".answer [data-relative]").forEach(ends), 20);
            setTimeout(() => fail(document.querySelector(".answer").textContent), patience);
        })""",
        PATIENCE,
    )
    _until(page, lambda: full.do(lambda _: job.refresh().state) == "succeeded")
    started = full.do(lambda _: job.attempts[0].started_at)

    assert abs(datetime.fromtimestamp(ended / 1000, UTC) - started) < timedelta(seconds=1)


# ----------------------------------------------------------------------------------------------------------------- live


def _ready(page: Page) -> None:
    """Wait until the page follows changes."""
    expect(page.locator("#live")).to_have_text("live")


@pytest.mark.realtime
def test_jobs_of_other_processes_appear(visit: Visit, site: Site):
    """Open lists show a job that another process enqueues, within four seconds, and the reader's place stays."""
    page = visit(site).open("/jobs?q=queue:elsewhere")
    _ready(page)
    took = []
    for number in range(3):
        job = site.do(lambda work, n=number: work.soon.options(queue="elsewhere").enqueue(n))
        before = SystemClock.monotonic()
        page.wait_for_selector(f"tbody th >> text='{job.id}'")
        took.append(SystemClock.monotonic() - before)
        if took[-1] < SOON:  # a busy machine has more than one chance
            break

    assert min(took) < SOON


ACTIONS = {
    "a pause of a cron": ("/schedules/nightly", lambda work: work.nightly.pause(), lambda work: work.nightly.resume()),
    "a pause of a queue": (
        "/queues/mail/out",
        lambda work: work.app.queue("mail/out").resume(),
        lambda work: work.app.queue("mail/out").pause(),
    ),
    "a pause in a list": (
        "/queues",
        lambda work: work.app.queue("shelf").pause(),
        lambda work: work.app.queue("shelf").resume(),
    ),
    "a signal": ("/runs/checkout/order/1", lambda work: work.checkout.run("order/1").signal("more", "x"), None),
    "an event": (
        "/machines/payment/cash/2",
        lambda work: work.payment.send("cash/2", work.Created(4, ""), busy="queue"),
        None,
    ),
}
"""Changes that change no number of jobs, each with a page that shows it, and what takes it back."""


@pytest.mark.parametrize("what", ACTIONS)
@pytest.mark.realtime
def test_actions_of_other_processes_appear(visit: Visit, site: Site, what: str):
    """Open pages show what another process does, within four seconds, also if no number of jobs changes."""
    path, act, undo = ACTIONS[what]
    page = visit(site).open(path)
    _ready(page)
    took = []
    for each in (act, undo, act):
        if each is None:
            break
        before, text = SystemClock.monotonic(), page.inner_text("main")
        site.do(each)
        page.wait_for_function("text => document.querySelector('main').innerText !== text", arg=text)
        took.append(SystemClock.monotonic() - before)
        if took[-1] < SOON and undo is None:  # a busy machine has more than one chance
            break
    if undo is not None:
        site.do(undo)

    assert min(took) < SOON


def test_nothing_moves_while_text_is_selected(visit: Visit, full: Site):
    """Changes wait until the reader has finished with the selected text."""
    page = visit(full).open("/jobs?q=queue:selected")
    _ready(page)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    job = full.do(lambda work: work.soon.options(queue="selected").enqueue(1))
    expect(page.locator("#live")).to_have_text("changes waiting")

    assert [] == _rows(page)
    page.evaluate("getSelection().removeAllRanges()")
    page.wait_for_selector(f"tbody th >> text='{job.id}'")


def test_nothing_moves_while_a_button_is_pressed(visit: Visit, full: Site):
    """Changes wait until the button is released, which then has its effect."""
    jobs = full.do(lambda work: [work.soon.options(queue="pressed", delay="1d").enqueue(n) for n in range(2)])
    page = visit(full).open(f"/jobs/{jobs[0].id}")
    _ready(page)
    page.hover("button[value=retry]")
    page.mouse.down()
    full.do(lambda _: jobs[1].cancel())
    expect(page.locator("#live")).to_have_text("changes waiting")
    page.mouse.up()

    expect(page.locator(".note")).to_have_text(f"job {jobs[0].id} is due now")


@pytest.mark.realtime
def test_paused_pages_ask_for_nothing(visit: Visit, full: Site):
    """Pause stops all requests of a page; the next click shows what was missed."""
    page = visit(full).open("/jobs?q=queue:paused")
    _ready(page)
    page.click("#live")
    page.wait_for_timeout(2000)  # an answer from before the pause may need an icon
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    job = full.do(lambda work: work.soon.options(queue="paused").enqueue(1))
    page.wait_for_timeout(3500)

    assert [] == asked
    page.click("#live")
    page.wait_for_selector(f"tbody th >> text='{job.id}'")


def test_hidden_pages_close_their_stream(visit: Visit, full: Site):
    """Tabs that are not seen hold no connection, and catch up as soon as they are seen."""
    page = visit(full).open("/jobs?q=queue:hidden")
    _ready(page)
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.isHidden})")
    show = "isHidden => { window.isHidden = isHidden; document.dispatchEvent(new Event('visibilitychange')); }"
    with page.expect_event("requestfailed", lambda sent: sent.url.endswith("/live")):
        page.evaluate(show, True)
    job = full.do(lambda work: work.soon.options(queue="hidden").enqueue(1))
    page.evaluate(show, False)
    page.wait_for_selector(f"tbody th >> text='{job.id}'")


def test_eight_tabs_share_one_stream(visit: Visit, full: Site):
    """Browsers open six connections to a server: eight open tabs stay usable, and all of them show a new job."""
    visitor = visit(full)
    streams: dict[Request, Page] = {}

    def keep(sent: Request) -> None:
        if sent.url.endswith("/live"):
            streams[sent] = sent.frame.page

    def open_streams() -> int:
        # The end of a request of a tab that was closed is not always reported.
        return sum(not page.is_closed() for page in streams.values())

    visitor.context.on("request", keep)
    for end in ("requestfinished", "requestfailed"):
        visitor.context.on(end, lambda sent: streams.pop(sent, None))
    tabs = [visitor.open("/jobs?q=queue:tabs") for _ in range(8)]
    for tab in tabs:
        _ready(tab)
    _until(tabs[0], lambda: open_streams() == 1)
    first = full.do(lambda work: work.soon.options(queue="tabs").enqueue(1))
    for tab in tabs:
        tab.wait_for_selector(f"tbody th >> text='{first.id}'")
    for tab in tabs[:-1]:
        tab.close()
    _until(tabs[-1], lambda: open_streams() == 1)
    second = full.do(lambda work: work.soon.options(queue="tabs").enqueue(1))
    tabs[-1].wait_for_selector(f"tbody th >> text='{second.id}'")

    assert [] == visitor.complaints


# --------------------------------------------------------------------------------------------------- lists and filters


def test_paging_visits_each_job_once(visit: Visit, site: Site):
    """All jobs of a filter are on exactly one page while new ones arrive, and the back button leads back."""
    page = visit(site).open("/jobs?q=tag:many")
    _ready(page)
    page.click("#live")  # a refresh would move the first page, and with it the link to the next
    seen = [_rows(page)]
    while page.locator("a[rel=next]").count():
        site.do(lambda work: work.charge.options(queue="shelf", delay="1d", tags=["many"]).enqueue(1, "late"))
        page.click("a[rel=next]")
        page.wait_for_load_state()
        seen.append(_rows(page))
    page.go_back()

    ids = [int(each) for rows in seen for each in rows]
    assert (120, sorted(set(ids), reverse=True)) == (len(ids), ids)
    assert seen[-2] == _rows(page)


def test_addresses_hold_the_state_of_a_list(visit: Visit, full: Site):
    """Copied addresses show the same list in another browser; wrong filters show their place and keep their text."""
    first = visit(full).open("/jobs")
    first.fill("main [name=q]", "state:dead task:charge")
    first.press("main [name=q]", "Enter")
    first.wait_for_url("**q=state**")
    second = visit(full, "bob").open(first.url)
    wrong = visit(full).open("/jobs?q=task:a+stat:dead", 400)

    assert str(DEAD) in _rows(first)
    assert _rows(first) == _rows(second)
    assert "task:a stat:dead" == wrong.input_value("main [name=q]")
    expect(wrong.locator("[role=alert] pre")).to_contain_text("^")


# ------------------------------------------------------------------------------------------------------ forms and keys


def test_double_clicks_act_once(visit: Visit, site: Site):
    """Double clicks send one request, and leave one line in the audit log."""
    visitor = visit(site)
    page = visitor.open("/jobs/8")
    posts: list[str] = []
    page.on("request", lambda sent: sent.method == "POST" and posts.append(sent.url))
    page.dblclick("button[value=retry]", no_wait_after=True)
    expect(page.locator(".note")).to_have_text("job 8 is due now")

    assert 1 == len(posts)


def test_stale_tabs_change_nothing(visit: Visit, site: Site):
    """Tabs that show a former state get the present one, with status 409."""
    visitor = visit(site)
    stale, fresh = visitor.open("/jobs/10"), visitor.open("/jobs/10")
    stale.evaluate("localStorage['redrive-live'] = 'off'")
    stale.click("#live")
    fresh.click("button[value=retry]")
    expect(fresh.locator(".note")).to_be_visible()
    with stale.expect_response(lambda answer: answer.request.method == "POST") as answer:
        stale.click("button[value=retry]")

    assert 409 == answer.value.status
    expect(stale.locator("[role=alert]")).to_contain_text("job 10 is ready now, not dead")


def test_confirmations_are_dialogs_that_return_the_focus(visit: Visit, full: Site):
    """Escape changes nothing and leads back to the button; the confirmed action is done."""
    job = full.do(lambda work: work.soon.options(delay="1d").enqueue(1))
    page = visit(full).open(f"/jobs/{job.id}")
    button = page.locator("button[value=cancel]")
    button.press("Enter")
    expect(page.locator("#confirm")).to_contain_text(f"Cancel job {job.id}?")
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    assert "ready" == full.do(lambda _: job.refresh().state)

    button.click()
    page.click("#confirm button[value=yes]")
    expect(page.locator(".note")).to_have_text(f"job {job.id} is cancelled")


def test_keys_lead_from_the_overview_to_an_action(visit: Visit, full: Site):
    """Without a mouse a reader opens the jobs, walks to one, opens it, and runs it after a confirmation."""
    page = visit(full).open("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("/")
    page.keyboard.type("id:12")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=id**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/12")
    page.keyboard.press("r")
    expect(page.locator("#confirm")).to_contain_text("Run this job now?")
    page.click("#confirm button[value=yes]")

    expect(page.locator(".note")).to_have_text("job 12 is due now")


def _tab_to(page: Page, target: str) -> None:
    """Press the tab key until an element has the focus, which no step may lose."""
    for _ in range(60):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement !== document.body"), target
        if page.locator(target).first.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"no tab leads to {target}")


def test_a_change_of_many_jobs_is_started_and_undone_by_keys(visit: Visit, full: Site):
    """From the search on the overview to the undo of a redrive, the focus is always somewhere."""
    options = {"tags": ["keys"], "delay": "1d", "queue": "keys"}  # which no worker serves
    jobs = full.do(lambda work: work.soon.options(**options).enqueue_many([1, 2]))
    full.do(lambda _: [each.cancel() for each in jobs])
    page = visit(full).open("/")
    page.keyboard.press("/")
    page.keyboard.type("state:cancelled tag:keys")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=*")
    _tab_to(page, "#acts summary")
    page.keyboard.press("Enter")
    _tab_to(page, "#acts button[value=redrive]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/operations/preview?*")
    _tab_to(page, "main button[value=redrive]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/operations/\d+"))
    _tab_to(page, "main button[value=undo]")
    page.keyboard.press("Enter")
    if page.locator("#confirm[open]").count():
        page.locator("#confirm button[value=yes]").press("Enter")

    expect(page.locator(".note")).to_contain_text("operation")
    _until(page, lambda: full.do(lambda _: [each.refresh().state.value for each in jobs]) == ["cancelled"] * 2)


def test_an_operation_shows_its_progress_and_is_stopped_and_undone(visit: Visit, site: Site):
    """Redriving of 5,000 jobs at 100 a second is stopped half-way, and its undo takes back exactly what it has done."""
    options = {"tags": ["mass"], "delay": "1d", "queue": "mass"}  # which no worker serves
    site.do(lambda work: work.soon.options(**options).enqueue_many(range(5000)))
    site.do(lambda work: _carried_out(work, "cancel"))
    visitor = visit(site)
    page = visitor.open("/operations/preview?action=redrive&q=state:cancelled+tag:mass&rate=100/s")
    expect(page.locator("h1")).to_have_text("Redrive 5,000 jobs?")
    page.fill("[name=confirm]", "5000")
    page.click("main button[value=redrive]")
    page.wait_for_url(re.compile(r"/operations/\d+"))
    number = int(page.url.rsplit("/", 1)[1])
    progress = page.locator("progress")
    _until(page, lambda: 0 < float(progress.get_attribute("value") or 0) < 5000)
    expect(visitor.open("/").locator(".underway")).to_contain_text("of 5,000 jobs, at 100/1s")
    page.click("button[value=stop]")
    # The page itself may show the state before the answer to the form has replaced it.
    expect(page.locator(".note")).to_have_text(f"operation {number} is stopped")
    expect(page.locator(".title .pill")).to_have_text("stopped")
    done = site.do(lambda work: work.app.operations.get(number).done)

    assert 0 < done < 5000
    assert done == site.do(lambda work: len(work.app.jobs.select(_mass(work))))
    page.click("button[value=undo]")
    page.locator("#confirm button[value=yes]").click()
    expect(page.locator(".note")).to_contain_text(f"undoes operation {number}")
    undo = int(page.url.rsplit("/", 1)[1])
    _until(page, lambda: site.do(lambda work: work.app.operations.get(undo).state.value) == "done")
    assert (done, 0) == site.do(
        lambda work: (work.app.operations.get(undo).done, len(work.app.jobs.select(_mass(work))))
    )


def _mass(work: Any) -> Any:
    return work.redrive.Filter(tag="mass", state="ready", limit=5000)


def _carried_out(work: Any, action: str) -> None:
    operations = work.app.operations
    operations.finish(operations.start(operations.preview(action, work.redrive.Filter(tag="mass", limit=5000))).id)


def test_letters_can_be_switched_off(visit: Visit, full: Site):
    """The help names the keys and has the switch; without them letters do nothing, also on the next page."""
    page = visit(full).open("/workers")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("next row")
    page.uncheck("#help input")
    page.keyboard.press("Escape")
    page.reload()
    for key in ("g", "j", "?", "p"):
        page.keyboard.press(key)
    page.wait_for_timeout(300)

    assert page.url.endswith("/workers")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page.locator("#live")).not_to_have_text("paused")


# ------------------------------------------------------------------------------------------------------------- security


def test_other_sites_can_neither_frame_nor_post(visit: Visit, full: Site):
    """Hostile pages show no dashboard in a frame, and their forms change nothing; logins lead to no other site."""
    visitor = visit(full)
    form = f'<form method="post" action="{full.url}/jobs/{DEAD}"><input name="action" value="retry"></form>'
    visitor.context.route(
        "http://evil.example/**",
        lambda route: route.fulfill(content_type="text/html", body=f'<iframe src="{full.url}/"></iframe>{form}'),
    )
    page = visitor.context.new_page()
    page.goto("http://evil.example/")
    frames = [each.url for each in page.frames]
    with page.expect_navigation() as answer:
        page.evaluate("document.forms[0].submit()")

    assert 403 == answer.value.status  # type: ignore[union-attr]
    assert "dead" == full.do(lambda work: work.app.job(DEAD).state)
    assert not any(each.startswith(full.url) for each in frames)
    page.goto(f"{full.url}/login?next=//evil.example/")
    page.fill("[name=name]", "ann")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    page.wait_for_url(f"{full.url}/")


# -------------------------------------------------------------------------------------------------------------- mounts


PREFIX = "/ops/redrive"


@contextlib.contextmanager
def _fastapi(app: redrive.App, auth: Users, place: str) -> Iterator[Any]:
    outer = FastAPI()
    outer.mount(place, create_app(app, auth=auth))
    yield outer


@contextlib.contextmanager
def _django(app: redrive.App, auth: Users, place: str) -> Iterator[Any]:
    with ThreadPoolExecutor(1) as outside:
        outside.submit(ready).result()
    routes = (route(f"{place[1:]}/", dashboard(app, auth=auth)),)
    with override_settings(ROOT_URLCONF=routes, ALLOWED_HOSTS=["*"]):
        yield ASGIHandler()


def _behind(prefix: str, inner: Any) -> Any:
    """Serve as uvicorn does with --root-path behind a proxy that removes the prefix."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        stripped = scope["path"].removeprefix(prefix)
        await inner({**scope, "root_path": prefix, "path": prefix + stripped}, receive, send)

    return served


def _log_in(page: Page) -> None:
    """Log in, which leads to the page that was asked for."""
    assert page.url.endswith(f"{PREFIX}/login?next=/jobs")
    page.fill("[name=name]", "ann")
    page.fill("[name=password]", PASSWORD)
    page.press("[name=password]", "Enter")
    page.wait_for_url(f"**{PREFIX}/jobs")
    _ready(page)


def _cancel_the_first(page: Page) -> str:
    """Cancel a job by its form, and return the address that follows."""
    page.click("tbody th a >> text='1'")
    page.click("button[value=cancel]")
    page.click("#confirm button[value=yes]")
    expect(page.locator(".note")).to_have_text("job 1 is cancelled")
    return page.url


def _find(page: Page) -> None:
    """Search, and change the zone of the times."""
    page.fill(".find [name=q]", "state:cancelled")
    page.press(".find [name=q]", "Enter")
    page.wait_for_url(re.compile(f"{PREFIX}/jobs.q=state%3Acancelled$"))
    assert ["1"] == _rows(page)
    page.click(".top .menu summary")
    page.click("button[value=UTC]")
    page.wait_for_url(re.compile(f"{PREFIX}/jobs.q=state%3Acancelled$"))


@pytest.mark.parametrize("removed", ["", "/ops"])
@pytest.mark.parametrize("mounted", [_fastapi, _django])
def test_mounted_dashboards_stay_below_their_prefix(visit: Visit, mounted: Callable[..., Any], removed: str):
    """Inside another application links, forms, redirects, the login, assets, copies and the stream keep the prefix,
    forms of other sites are refused, and the browser asks for no address outside of it, also where a proxy removes a
    part of the prefix."""
    app = redrive.App("memory://")

    @app.task
    def mail() -> None:
        """Do nothing."""

    delayed = mail.options(delay="1h")
    users = Users({"ann": Account(Role.OPERATE, hash_password(PASSWORD, salt=bytes(16)))})
    with (
        ThreadPoolExecutor(1) as outside,
        mounted(app, users, PREFIX.removeprefix(removed)) as outer,
        served(_behind(removed, outer) if removed else outer) as url,
    ):
        outside.submit(delayed.enqueue).result()
        visitor = visit(SimpleNamespace(url=url, users=False))  # type: ignore[arg-type]
        visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = visitor.open(f"{PREFIX}/jobs")
        asked: list[str] = []
        page.on("request", lambda sent: asked.append(sent.url))
        _log_in(page)
        second = outside.submit(delayed.enqueue).result()
        page.wait_for_selector(f"tbody th >> text='{second.id}'")
        links = page.evaluate(
            "[...document.querySelectorAll('[href], [src], [action]')].map("
            "each => each.getAttribute('href') || each.getAttribute('src') || each.getAttribute('action'))"
        )
        page.click(".foot [data-copy]")
        copied = page.evaluate("navigator.clipboard.readText()")
        address = _cancel_the_first(page)
        forged = visitor.context.request.post(
            f"{PREFIX}/jobs/2", form={"action": "cancel"}, headers={"Origin": "https://evil.example"}
        )
        _find(page)
        # A refresh that is under way when the session ends is refused.
        complaints = [*visitor.complaints]
        page.click(".who button")
        page.wait_for_url(f"**{PREFIX}/login")
        visitor.context.close()  # its stream would keep the server from ending
    state = app.job(2).state
    app.close()

    assert f"{url}{PREFIX}/jobs/1" == address
    assert copied.startswith("redrive jobs list")
    assert (403, "ready") == (forged.status, state)
    assert [] == [link for link in links if not link.startswith((f"{PREFIX}/", "#", "?"))]
    assert [] == [each for each in asked if not each.startswith(f"{url}{PREFIX}/")]
    assert [] == complaints


# ------------------------------------------------------------------------------------------ servers that come and go


def test_pages_come_back_after_a_stop(visit: Visit, full: Site):
    """Servers with three open streams end within four seconds; its pages note that, and come back by themselves."""
    pages = [visit(full).open("/jobs?q=queue:restarted") for _ in range(3)]
    for page in pages:
        _ready(page)
    took = full.stop()
    for page in pages:
        expect(page.locator("#live")).to_have_text("reconnecting")
    job = full.do(lambda work: work.soon.options(queue="restarted").enqueue(1))
    full.start()
    full.wait()

    for page in pages:
        expect(page.locator("tbody th")).to_have_text([str(job.id)])
    assert took < SOON


def test_developers_log_in_by_a_link_that_works_once(browser: Browser, full: Site):
    """The address keeps no token, another browser is refused, and the page of a developer is accessible and works."""
    process = full.deployment.run(sys.executable, "-m", "redrive", "dev", "work:app", "--port", "0", "--memory")
    full.deployment.until(lambda: "(it logs in once" in process.log.read_text())
    base, path = re.search(r"(http://\S+?)(/login/\S+) ", process.log.read_text()).groups()  # type: ignore[union-attr]
    first, second = browser.new_context(base_url=base, bypass_csp=True), browser.new_context(base_url=base)
    try:
        page, other = first.new_page(), second.new_page()
        page.goto(path)
        addresses = [page.url, *page.evaluate("performance.getEntriesByType('navigation').map(each => each.name)")]
        refused = other.goto(path)
        page.goto("/dev?task=charge")
        result = Axe().run(page, options={"runOnly": STANDARDS, "resultTypes": ["violations"]})
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        page.fill("[name='arg.order']", "8")
        page.fill("[name='arg.password']", "open sesame")
        page.fill("[name=delay]", "1h")
        page.click("button[value=enqueue]")
        expect(page.locator(".title")).to_contain_text("scheduled")
        job = page.url
        page.goto("/dev")
        page.fill("[name=by]", "1h")  # without a span the clock is set to what is due next, such as the cron
        page.click("button[value=jump]")
        expect(page.locator(".note")).to_have_text("the clock was advanced by 1h")
        page.goto(job)
        expect(page.locator(".title")).to_contain_text("succeeded")
    finally:
        first.close()
        second.close()
    process.send(signal.SIGTERM)

    assert [f"{base}/"] * 2 == addresses
    assert refused is not None
    assert 401 == refused.status
    assert ([], 0) == ([each["id"] for each in result.response["violations"]], wide)
    assert 0 == process.ended()
