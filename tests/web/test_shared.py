"""The statements of pages, and the figures that all viewers of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.routing import compile_path

import redrive
from redrive import Filter
from redrive.app.protocol import run
from redrive.operate import operations
from redrive.operate.exchange import Refusal, Request, Site, User
from redrive.operate.shared import KEPT, PULSED, Shared, merged
from redrive.operate.table import ROWS
from redrive.runtime.worker import Worker
from redrive.stores.operations import queues
from redrive.stores.operations.changes import Latest
from redrive.stores.operations.queues import Depth, Depths, DepthState
from redrive.stores.query import Compound, Operation
from redrive.testing import VirtualClock
from redrive.web.live import Changes
from tests.stores.helpers import T0
from tests.web.client import Client, Operator
from tests.web.test_pages import PAGES, app, client

__all__ = ["app", "client"]

MOST = 8
"""The statements that a page may take."""

FILLED = [
    "/?span=90d",
    "/jobs?q=state:dead+task:charge+tag:late&before=9&limit=1",
    "/find?q=card&before=9&limit=1",
    "/errors?task=charge&dead=1&limit=1",
    "/workers/3?before=9&limit=1",
    "/queues?span=8h",
    "/tasks?span=8h",
    "/tasks/charge?span=90d",
    "/queues/mail/out?span=90d",
    "/workers?span=3d",
    "/autoscale?queue=mail/out&target=30s",
    "/runs?workflow=checkout&state=ready&hold=parked&before=9&limit=1",
    "/machines/payment?state=created&after=a&limit=1",
    "/machines/payment/card?before=99&limit=1",
    "/schedules?after=a&limit=1",
    "/schedules/nightly?before=2030-01-01T00:00:00Z&limit=1",
    "/schedules/table?after=a&troubled_after=a&limit=1",
    "/schedules/nightly/calendar?tz=America/New_York&week=2026-03-08",
    "/operations?before=9&limit=1",
    "/operations/1?after=0&limit=1",
    "/operations/preview?q=state:ready&action=cancel&rate=100/s&why=x",
    "/operations/preview?q=state:dead&action=redrive&queue=mail",
    "/operations/preview?q=state:ready&action=repolicy",
    "/audit?before=9&limit=1",
    "/audit?about=queue:mail",
    "/topics/receipts/send/move?to=end",
    "/topics/receipts/send/move?to=1",
    "/topics/receipts/send/move?to=2020-01-01T00:00:00Z",
    "/topics/receipts/many",
    "/topics/receipts/many?span=8h",
    "/queues?only=unserved",
    "/topics/receipts/many/move?to=2020-01-01T00:00:00Z",
]
"""Pages with each of their parameters; `many` has eight shards and dead events."""


@pytest.fixture
def empty() -> Iterator[redrive.App]:
    """Return an App with a task and no jobs."""
    app = redrive.App("memory://")

    @app.task
    def send() -> None:
        """Do nothing."""

    app.open()
    yield app
    app.close()


@pytest.fixture
def statements(app: redrive.App, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the statements of all operations."""
    seen: list[str] = []
    kind = type(app.store)
    original = kind.arun

    def watched(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Yield what an operation yields."""
        answer = None
        while True:
            try:
                query = steps.send(answer)
            except StopIteration as end:
                return end.value
            seen.extend(each.name for each in (query.queries if isinstance(query, Compound) else [query]))
            answer = yield query

    async def arun(self: Any, operation: Operation[Any], **options: Any) -> Any:
        """Run an operation."""
        return await original(self, replace(operation, steps=watched(operation.steps)), **options)

    monkeypatch.setattr(kind, "arun", arun)
    return seen


def _fill(app: redrive.App) -> None:
    """Add a subscription with eight shards, give it events of which some are dead, and fill three limited queues."""
    receipts = app.topics.declared["receipts"]

    @receipts.subscribe("many", order="none", shards=8, retry="0", start="beginning")
    def many(event: dict[str, str]) -> None:
        """Fail for good."""
        raise ValueError(event["password"])

    receipts.publish_many([{"password": str(number)} for number in range(20)])
    asyncio.run(Worker(app, until_empty=True).run())
    for name in ("first", "second", "third"):
        app.queue(name).limit(concurrency=2, per_partition=1, rate="5/1m", ordered=True)
        app.tasks["charge"].options(queue=name, partition="p").enqueue_many([(number, "x") for number in range(3)])


def test_a_page_takes_few_statements(app: redrive.App, statements: list[str]):
    """No page takes more than eight statements, also filled forms, and with nothing that is shared yet."""
    _fill(app)
    taken = {}
    group = Operator(app).read("/errors?task=charge&dead=1")["items"][0]["id"]
    for path in [*PAGES, *FILLED, f"/errors/{group}", f"/errors/{group}?before=9&limit=1"]:
        operator = Operator(app)
        operator.get("/problems/JobNotFound")  # The first request also carries out an operation of the fixture.
        statements.clear()
        assert 200 == operator.get(path).status_code, path
        taken[path] = [*statements]

    assert taken["/"]
    assert {} == {path: each for path, each in taken.items() if len(each) > MOST}


def test_every_page_is_counted():
    """The statements of each page are counted, and of each that takes parameters also with parameters."""
    served = [path.partition("?") for path in [*PAGES, *FILLED, "/errors/group", "/errors/group?before=9"]]
    plain, given = ({path for path, _, query in served if bool(query) is asked} for asked in (False, True))
    for route in (each for each in ROWS if each.method == "GET"):
        pattern = compile_path(route.path)[0]
        assert any(pattern.match(path) for path in plain | given), route.path
        assert route.query is None or any(pattern.match(path) for path in given), route.path


def test_viewers_share_the_figures_of_the_overview(client: Client, statements: list[str]):
    """The second viewer of the overview within ten seconds takes no statement, and an action has them read anew."""
    client.get("/")
    statements.clear()
    client.get("/")
    client.get("/queues")

    assert [] == statements
    client.post("/queues/mail%2Fout", data={"action": "resume"}, headers={"Origin": "http://localhost"})
    assert None is next(each for each in _queues(client) if each["name"] == "mail/out")["paused_at"]


def _queues(client: Client) -> list[dict[str, Any]]:
    return client.get("/api/v1/overview").json()["queues"]


def test_the_overview_has_the_time_of_its_figures(app: redrive.App, client: Client):
    """The overview has the instant at which it was read beside the present one, and shows the first."""
    first, second = (client.get("/api/v1/overview").json() for _ in range(2))

    assert first["read_at"] == second["read_at"] <= first["at"] < second["at"]
    assert "the same for all viewers" in client.get("/").text


def test_a_queue_that_is_new_has_a_page(empty: redrive.App, monkeypatch: pytest.MonkeyPatch):
    """The figures are read anew for a queue that they do not have, unless they were read in this second."""
    operator = Operator(empty)
    operator.read("/overview")
    empty.tasks["send"].options(queue="new").enqueue()

    assert 404 == operator.get("/api/v1/queues/new").status_code
    monkeypatch.setattr("redrive.operate.queues.LEAST", timedelta(0))
    assert 1 == operator.read("/queues/new")["load"]["due"]["value"]


def test_running_operations_are_on_the_overview(empty: redrive.App):
    """Operations that have not ended are on the overview, with their jobs and their rate."""
    empty.tasks["send"].options(delay="1h").enqueue_many([()] * 3)
    begun = empty.operations.start(empty.operations.preview("cancel", Filter(task="send")), rate="1/1h")
    operator = Operator(empty)
    (found,) = operator.read("/overview")["operations"]

    assert (str(begun.id), "cancel", 3, "1/1h") == (found["id"], found["action"], found["matched"], found["rate"])
    assert f'href="/operations/{begun.id}"' in operator.get("/").text


def test_previews_are_made_one_after_the_other(empty: redrive.App):
    """Previews are refused while another one counts, and possible again when that has ended or was given up."""
    site = Site(empty)
    query = {"action": "cancel", "q": "task:send"}
    request = Request("GET", "/operations/preview", User("ann"), query=query)
    first, second = operations.preview(site, request), operations.preview(site, request)
    next(first)

    with pytest.raises(Refusal, match="another preview is counting") as refused:
        next(second)
    assert (429, "1") == (refused.value.status, refused.value.headers["Retry-After"])
    first.close()
    assert "(0) cancel?" == run(empty.store, operations.preview(site, request)).title


# -------------------------------------------------------------------------------------------------------------- shared


def _read(shared: Shared, store: Any, value: int) -> int:
    def procedure() -> Generator[Any, Any, int]:
        """Return a value."""
        return value
        yield

    return run(store, shared.read("key", procedure()))


def test_a_read_is_kept_for_ten_seconds():
    """Reads are repeated after ten seconds, or when something was changed."""
    clock = VirtualClock(T0)
    shared = Shared(clock)
    found = [_read(shared, None, 1), _read(shared, None, 2)]
    clock.advance(KEPT)
    found.append(_read(shared, None, 3))
    shared.forget()
    found.append(_read(shared, None, 4))

    assert [1, 1, 3, 4] == found
    clock.advance(2)
    assert timedelta(seconds=2) == shared.age("key")
    assert timedelta(0) == shared.age("other")


def test_one_request_reads_for_all():
    """While a request reads, others have the result before; a change during the read has the next one read again."""
    clock = VirtualClock(T0)
    shared = Shared(clock)
    _read(shared, None, 1)
    clock.advance(KEPT)

    def slow() -> Generator[Any, Any, int]:
        """Wait for an answer."""
        return (yield queues.depths())

    reading = shared.read("key", slow())
    next(reading)

    assert 1 == _read(shared, None, 2)
    shared.forget()
    with pytest.raises(StopIteration) as end:
        reading.send(3)
    assert 3 == end.value.value
    assert 4 == _read(shared, None, 4)


def _depth(queue: str, standing: DepthState, jobs: int, *, is_capped: bool = False) -> Depth:
    return Depth(queue, standing, jobs, None, is_capped)


LATEST = Latest(1, 1, 1, 1, 1, 1)


def test_small_numbers_come_from_the_live_updates():
    """Numbers are taken from the second count, unless that has reached its limit in the queue or the state."""
    due, dead, running = DepthState.DUE, DepthState.DEAD, DepthState.RUNNING
    whole = (_depth("a", due, 5), _depth("b", due, 9_000), _depth("a", dead, 700), _depth("b", dead, 700))
    pulsed = (
        _depth("a", running, 1),
        _depth("b", due, PULSED, is_capped=True),
        _depth("a", dead, 600, is_capped=True),
        _depth("b", dead, 400, is_capped=True),
    )

    assert {_depth("a", running, 1), *whole[1:]} == set(merged(whole, pulsed))


def test_changes_are_shown_twice():
    """Pages are read after a change, and again when the figures that they share are newer."""
    quiet = Depths(T0, (_depth("a", DepthState.DUE, 1),))
    moved = Depths(T0, ())
    changes = Changes()

    assert [False, False, True] == [changes.show(each, LATEST, 0.0) for each in (quiet, quiet, moved)]
    assert [False, True, False] == [changes.show(moved, LATEST, at) for at in (KEPT - 1, KEPT, KEPT * 3)]


@pytest.mark.parametrize("field", Latest.__struct_fields__)
def test_what_changes_no_number_of_jobs_is_shown(field: str):
    """A pause, a signal, an event and a worker are shown, too; after an action shared figures are read anew."""
    changes, quiet = Changes(), Depths(T0, ())
    changes.show(quiet, LATEST, 0.0)
    latest = replace(LATEST, **{field: 9})

    assert (field == "audit") is changes.have_acted(latest)
    assert [True, False] == [changes.show(quiet, latest, 1.0) for _ in range(2)]
    assert not changes.have_acted(latest)


def test_numbers_above_the_limit_are_read_again():
    """Numbers that may change unseen are read again as often as the figures are."""
    deep = Depths(T0, (_depth("a", DepthState.DUE, PULSED, is_capped=True),))
    changes = Changes()

    assert [False, False, True, False, True] == [
        changes.show(deep, LATEST, at) for at in (0.0, 2.0, KEPT, KEPT + 2, KEPT * 2)
    ]
