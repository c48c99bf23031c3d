"""``make screenshots``: pictures of all pages of the dashboard, light and dark, for the tour in the documentation.

The dashboard shows an app in memory with a virtual clock, so that pictures change only where pages do. Chromium makes
them (``REDRIVE_CHROMIUM`` names it), and writes them as WebP, which takes a third of the room of PNG. ``--width 390``
with another ``--to`` makes those of a narrow screen, to be looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from playwright.sync_api import Page, expect, sync_playwright
from starlette.applications import Starlette

import redrive
from redrive.clock import SystemClock
from redrive.operate.exchange import Dev, Site
from redrive.runtime.worker import Worker
from redrive.stores.operations import leases, workers
from redrive.testing import VirtualClock, drain
from redrive.web import Credentials, Role, User, create_app
from redrive.web.asgi import Dashboard

PAGES = {
    "overview": "/",
    "health": "/health",
    "jobs": "/jobs?q=state:dead",
    "job": "/jobs/{flaky}",
    "queues": "/queues",
    "queue": "/queues/mail",
    "tasks": "/tasks",
    "task": "/tasks/charge",
    "workers": "/workers",
    "autoscale": "/autoscale?target=30s",
    "runs": "/runs",
    "run": "/runs/checkout/order-42",
    "machines": "/machines",
    "machine": "/machines/payment",
    "instance": "/machines/payment/inv-3",
    "topics": "/topics",
    "subscription": "/topics/invoices/ledger",
    "move": "/topics/invoices/ledger/move?to=beginning",
    "schedules": "/schedules",
    "schedule": "/schedules/close_the_books",
    "calendar": "/schedules/close_the_books/calendar?week=2026-10-19",
    "item": "/schedules/prices/item?key=customer-7",
    "playground": "/playground?p=5+1s+10s+catch+refund&p2=8+1s+1m",
    "operations": "/operations",
    "operation_preview": "/operations/preview?action=redrive&q=state:dead+task:charge&rate=100/s",
    "operation": "/operations/1",
    "errors": "/errors",
    "error": "/errors/{group}",
    "problem_type": "/problems/JobNotFound",
    "audit": "/audit",
    "dev": "{developer}/dev?task=charge",
}
"""The address of the picture of each page, by the name of its template."""

SCHEMES = ("light", "dark")
TALLEST = 900
"""Pixels of a page that are shown; below are rows that look like those above."""

_TO_WEBP = """async (data) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width; canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.65);
}"""

HOUR = timedelta(hours=1)


@dataclass
class Created:
    """An invoice was written."""

    cents: int


@dataclass
class Paid:
    """The bank has the money."""

    reference: str


def build() -> tuple[redrive.App, int]:
    """Return an open app with a day's work, and the id of a job with failed attempts."""
    app = redrive.App("memory://", clock=VirtualClock(datetime(2026, 10, 22, 7, tzinfo=UTC)))
    charge, mail = _tasks(app)
    parts = (_schedules(app), _workflow(app), _machine(app), _topic(app))
    app.open()
    for number in range(40):
        charge.enqueue(f"inv-{number}", 990)
    flaky = charge.enqueue("inv-flaky", 4900)
    for part in parts:
        part()
    drain(app, within="26h", sample=lambda: 0.5)
    for minute in range(50):
        charge.enqueue_many([(f"inv-{100 + 7 * minute + each}", 990) for each in range(minute * 5 % 11)])
        asyncio.run(Worker(app, until_empty=True).run())
        app.clock.advance("1m")
    mail.enqueue_many([f"ann{number}@example.com" for number in range(14)])
    mail.options(delay="3h", tags=["newsletter"]).enqueue_many([f"bob{number}@example.com" for number in range(30)])
    charge.options(queue="reports").enqueue_many([(f"inv-{number}", 120) for number in range(90, 96)])
    app.queue("mail").limit(concurrency=4, rate="100/1m", actor="ann")
    app.queue("reports").pause(actor="ann")
    for name, served in (("web-1", None), ("web-2", None), ("batch-1", ["mail"])):
        given: dict[str, Any] = {"concurrency": 10, "lease_for": HOUR, "now": app.now()}
        worker = app.store.run(workers.register(name, queues=served, version=redrive.__version__, **given))
        app.store.run(leases.claim(worker, 2, lease_for=HOUR, queues=served, now=app.now()))
    app.clock.advance("30s")
    return app, int(flaky.id)


def _tasks(app: redrive.App) -> tuple[Any, Any]:
    @app.task(queue="payments", retry="4 1s 5m")
    def charge(invoice: str, cents: int, context: redrive.Context) -> str:
        number = int(invoice.removeprefix("inv-")) if invoice[-1].isdigit() else 0
        app.clock.advance(0.2 + number % 7 / 10)
        if invoice == "inv-flaky" and context.attempt == 3:
            raise redrive.RetryAfter("30h", "429 Too Many Requests: the bank asks for a pause")
        if invoice == "inv-flaky" or number % 13 == 5:
            raise TimeoutError(f"POST https://bank.example/charges timed out for {invoice}")
        if number % 13 == 8:
            raise redrive.GiveUp("card declined")
        return f"paid {cents}"

    @app.task(queue="mail", retry="3 1m")
    def mail(to: str) -> None:
        app.clock.advance(0.1)

    return charge, mail


def _schedules(app: redrive.App) -> Callable[[], object]:
    @app.cron("30 3 * * *", tz="Europe/Kyiv", retry="5 1m", overlap="skip")
    def close_the_books() -> None:
        app.clock.advance(42.0)

    @app.refresh("Refresh every 6 hours; retry 3 times every 10 minutes; give up after 3 days of unsuccessful attempts")
    def prices(url: str) -> None:
        app.clock.advance(1.0)
        if "7" in url:
            raise ConnectionError(f"{url}: connection refused")

    return lambda: prices.track_many([(f"customer-{n}", f"https://example.com/{n}.csv") for n in range(5, 12)])


def _workflow(app: redrive.App) -> Callable[[], object]:
    def charge_card(order: int) -> str:
        app.clock.advance(0.8)
        return f"charge of {order}"

    @app.workflow()
    async def checkout(flow: redrive.Flow, order: int) -> str:
        paid = await flow.step(charge_card, order, retry="5 1s")
        await flow.sleep("2h")
        note = await flow.wait_for("shipped", str, timeout="7d")
        return f"{paid}, {note}"

    def start() -> None:
        for number in (41, 42, 43):
            run = checkout.start(number, id=f"order-{number}")
        run.signal("shipped", "parcel 7")

    return start


def _machine(app: redrive.App) -> Callable[[], object]:
    payment = app.machine("payment", data=dict)

    @payment.start(retry="3 1h")
    def created(event: Created, ctx: redrive.Context) -> None:
        ctx.set_data({"cents": event.cents})

    @payment.state(after=[created], retry="3 1h")
    def settled(event: Paid, ctx: redrive.Context) -> None:
        app.clock.advance(0.4)
        if event.reference == "r-3":
            raise ConnectionError("ledger: no route to host")

    def send() -> None:
        for number in range(8):
            payment.send(f"inv-{number}", Created(100 * number), busy="queue")
            if number < 5:
                payment.send(f"inv-{number}", Paid(f"r-{number}"), busy="queue")

    return send


def _topic(app: redrive.App) -> Callable[[], object]:
    invoices = app.topic("invoices", dict[str, int])

    @invoices.subscribe("ledger", order="key", retry="3 1h")
    def ledger(event: dict[str, int]) -> None:
        if event["number"] == 4:
            raise ConnectionError("ledger: no route to host")

    @invoices.subscribe("search", order="none", retry="3 1m")
    def search(event: dict[str, int]) -> None:
        app.clock.advance(0.01)

    return lambda: [invoices.publish({"number": number}, key=f"customer-{number % 4}") for number in range(12)]


async def _ann(_: Credentials) -> User:
    return User("ann", Role.OPERATE)


def serve(dashboard: Starlette) -> str:
    """Serve a dashboard in a thread, and return its address."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(dashboard, port=port, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        SystemClock().sleep(0.05)
    return f"http://127.0.0.1:{port}"


def shoot(page: Page, path: str, scheme: str, width: int) -> bytes:
    """Return a picture of one page as WebP."""
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type] # one of `SCHEMES`
    page.set_viewport_size({"width": width, "height": TALLEST})
    answer = page.goto(path)
    if answer is None or not answer.ok:
        raise SystemExit(f"{path}: {page.locator('main').inner_text()}")
    # A page without a stream has no such button.
    expect(page.locator("#live")).to_have_text(re.compile("^(live)?$"))
    png = page.screenshot()
    url = page.context.new_page().evaluate(_TO_WEBP, base64.b64encode(png).decode())
    return base64.b64decode(url.partition(",")[2])


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(prog="docs/screenshots.py", description="Pictures of the dashboard.")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "screenshots")
    parser.add_argument("--width", type=int, default=1280)
    chosen = parser.parse_args()
    chosen.to.mkdir(exist_ok=True)
    app, flaky = build()
    url = serve(create_app(app, auth=_ann, title="production", reference="shop:app"))
    developer = serve(Dashboard(Site(app, reference="shop:app", dev=Dev(lambda by: None)), _ann, ()).application())
    own = {"Origin": url}
    httpx.post(f"{url}/operations", data={"action": "redrive", "q": "state:dead", "rate": "1/1m"}, headers=own)
    group = httpx.get(f"{url}/api/v1/errors").json()["items"][0]["id"]
    with sync_playwright() as playwright:
        chromium = os.environ.get("REDRIVE_CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(base_url=url, reduced_motion="reduce").new_page()
        for name, path in PAGES.items():
            for scheme in SCHEMES:
                picture = shoot(page, path.format(flaky=flaky, group=group, developer=developer), scheme, chosen.width)
                (chosen.to / f"{name}-{scheme}.webp").write_bytes(picture)
        browser.close()


if __name__ == "__main__":
    main()
