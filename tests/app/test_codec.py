"""The codec of an app: what the database stores, who reads it, and what happens without the key."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from cryptography.fernet import Fernet, MultiFernet

from redrive import App, Backoff, CatchRequest, Context, DeadLetter, Filter, Flow, Policy
from redrive.engine.lifecycle import State
from redrive.engine.records import ENCODED, Hold
from redrive.errors import CodecError, PayloadEncoded, PayloadError
from redrive.operate.shown import NO_KEY
from redrive.testing import VirtualClock, drain
from tests import postgres
from tests.runtime.helpers import ended, until, working
from tests.web.client import Operator

OLD, NEW = Fernet.generate_key(), Fernet.generate_key()

SECRET = "4111-1111"

DOCUMENTS = (
    ("redrive_payloads", "payload"),
    ("redrive_results", "result"),
    ("redrive_steps", "result"),
    ("redrive_signals", "payload"),
    ("redrive_emits", "payload"),
    ("redrive_events", "payload"),
    ("redrive_instances", "data"),
    ("redrive_moves", "payload"),
    ("redrive_runs", "set_values"),
    ("redrive_refreshes", "payload"),
)


class Encrypted:
    """Encrypts by the first key, and decrypts by any."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = MultiFernet([Fernet(key) for key in keys])

    def encode(self, document: bytes) -> str:
        """Encrypt a document."""
        return self._keys.encrypt(document).decode()

    def decode(self, text: str) -> bytes:
        """Decrypt a text."""
        return self._keys.decrypt(text)


@dataclass
class Begin:
    """The first event of an instance."""

    person: str


@dataclass
class Go:
    """The next one."""

    person: str


@dataclass
class Data:
    """The data of an instance."""

    person: str


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/app.db?synchronous=normal"
    else:
        with postgres.lent() as found:
            yield found


class Shop:
    """An app with a handler of every kind, each of which takes a person."""

    def __init__(self, url: str, codec: Any, clock: VirtualClock | None = None) -> None:  # noqa: C901 - many handlers
        self.app = App(url, codec=codec, clock=clock or VirtualClock(), keep_for="forever")
        self.seen: list[str] = []
        app, seen = self.app, self.seen

        @app.task(name="charge", search=["person"], retry="1 1s catch caught")
        def charge(ctx: Context, person: str, fails: bool = False) -> dict[str, str]:
            seen.append(f"charge {person}")
            if fails:
                raise OSError("declined")
            return {"paid": person}

        @app.task(name="caught")
        def caught(request: CatchRequest[Any]) -> None:
            seen.append(f"caught {request.request['person']}")

        def pay(person: str) -> dict[str, str]:
            seen.append(f"pay {person}")
            return {"receipt": person}

        def back(receipt: dict[str, str]) -> None:
            seen.append(f"back {receipt['receipt']}")

        @app.workflow(name="order")
        async def order(flow: Flow, person: str) -> str:
            flow.set("person", person)
            paid = await flow.step(pay, person, undo=back)
            sent = await flow.wait_for("go", str)
            told = await flow.wait_for_event("news", str)
            child = await flow.call(inner, person)
            both = await flow.gather(flow.step(pay, "a"), flow.step(pay, "b"))
            return f"{paid['receipt']} {sent} {told} {child} {len(both)}"

        @app.workflow(name="inner")
        async def inner(flow: Flow, person: str) -> str:
            return person

        machine = app.machine("door", data=Data, busy="queue")

        @machine.start
        def opened(ctx: Context, event: Begin) -> None:
            ctx.set_data(Data(event.person))

        @machine.state(after=[opened])
        def closed(ctx: Context, event: Go) -> None:
            seen.append(f"closed {ctx.data.person} {event.person}")

        paid = app.topic("paid", Begin)

        @paid.subscribe("mail")
        def mail(event: Begin) -> None:
            seen.append(f"mail {event.person}")

        @app.refresh("every hour", name="fresh")
        def fresh(person: str) -> None:
            seen.append(f"fresh {person}")

        self.charge, self.order, self.machine, self.paid, self.fresh = charge, order, machine, paid, fresh

    def start(self) -> tuple[Any, Any]:
        """Start one of everything, and return the handles on a job and on a run."""
        job = self.charge.options(idempotency_key="once").enqueue(SECRET)
        self.charge.enqueue(SECRET, fails=True)
        run = self.order.start(SECRET, id="r")
        self.machine.send("front", Begin(SECRET))
        self.machine.send("front", Go(SECRET))
        self.paid.publish(Begin(SECRET))
        return job, run

    def go_on(self, run: Any) -> None:
        """Send the run what it waits for."""
        run.signal("go", SECRET)
        self.app.emit("news", SECRET)


def stored(url: str) -> dict[str, list[bytes]]:
    """Return the documents in the database, by their tables."""
    selects = {table: f"SELECT {name} FROM {table} WHERE {name} IS NOT NULL" for table, name in DOCUMENTS}  # noqa: S608
    opened: Any
    if url.startswith("sqlite"):
        opened = contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0]))
    else:
        server, _, schema = url.partition("&schema=")
        opened = psycopg.connect(server, options=f"-csearch_path={schema}")
    with opened as connection:
        return {
            table: [bytes(each) for (each,) in connection.execute(select).fetchall()]
            for table, select in selects.items()
        }


def plain(url: str) -> list[str]:
    """Return the tables with a document that is not encoded, but for what redrive itself writes."""
    own = {b"{}", b"null", b"true", b"0", b"1", b"2"}
    return [
        table
        for table, documents in stored(url).items()
        if any(not each.startswith(ENCODED) and each not in own for each in documents)
    ]


def finish(shop: Shop, run: Any) -> None:
    """Run everything to its end."""
    drain(shop.app, within="5s")
    shop.go_on(run)
    drain(shop.app, within="5s")


def test_no_document_is_stored_as_it_is(url: str):
    """Arguments, results, values, steps, signals, events, items and data are encoded, and handlers get them decoded."""
    shop = Shop(url, Encrypted(OLD))
    shop.fresh.track("a", SECRET)
    job, run = shop.start()
    kept = stored(url)
    finish(shop, run)

    assert f"{SECRET} {SECRET} {SECRET} {SECRET} 2" == run.result(timeout=0)
    assert {"paid": SECRET} == job.result(timeout=0)
    assert {
        *(f"{each} {SECRET}" for each in ("charge", "caught", "pay", "mail", "fresh")),
        f"closed {SECRET} {SECRET}",
    } <= set(shop.seen)
    assert [] == plain(url)
    assert not any(SECRET.encode() in each for each in itertools.chain(*kept.values(), *stored(url).values()))
    assert all(stored(url)[table] or kept[table] for table, _ in DOCUMENTS)
    shop.app.close()


def test_tags_keys_and_digests_are_those_of_the_plain_documents(url: str):
    """Declared search, idempotency keys, ids of runs and keys of events work as without a codec."""
    shop = Shop(url, Encrypted(OLD))
    job, run = shop.start()
    again, same = shop.start()

    assert (job.id, run.job.id, False) == (again.id, same.job.id, again.created)
    assert {job.id} < {each.id for each in shop.app.jobs.select(Filter(tag=SECRET))}
    shop.app.close()


def test_rows_from_before_the_codec_are_read(url: str):
    """Old documents stay as they are, also those of a run that goes on."""
    before = Shop(url, None)
    job, run = before.start()
    drain(before.app, within="5s")
    before.app.close()
    shop = Shop(url, Encrypted(OLD))
    shop.charge.enqueue("new")
    finish(shop, run := shop.order.run("r"))

    assert f"{SECRET} {SECRET} {SECRET} {SECRET} 2" == run.result(timeout=0)
    assert {"paid": SECRET} == shop.app.job(job.id).result(timeout=0)
    assert "charge new" in shop.seen
    assert "redrive_payloads" in plain(url)
    shop.app.close()


def test_a_run_goes_on_across_a_rotation(url: str):
    """A replay reads rows of the old key and writes rows of the new one; a fork and its undos read both."""
    before = Shop(url, Encrypted(OLD))
    before.start()
    before.order.start(SECRET, id="other")
    drain(before.app, within="5s")
    before.app.close()
    shop = Shop(url, Encrypted(NEW, OLD))
    run, other = shop.order.run("r"), shop.order.run("other")
    other.cancel("no")
    finish(shop, run)
    fork = run.fork(from_step="go")
    drain(shop.app, within="5s")
    shop.go_on(fork)
    drain(shop.app, within="5s")

    assert [f"{SECRET} {SECRET} {SECRET} {SECRET} 2"] * 2 == [each.result(timeout=0) for each in (run, fork)]
    assert 1 == shop.seen.count(f"back {SECRET}")
    assert 0 == shop.seen.count(f"pay {SECRET}")
    shop.app.close()


@pytest.mark.parametrize("codec", [None, Encrypted(NEW)], ids=["no codec", "another key"])
def test_without_the_key_everything_waits(url: str, codec: Any):
    """No handler runs, nothing is dead, and with the key all goes on; the job says why it waits."""
    clock = VirtualClock()
    before = Shop(url, Encrypted(OLD), clock)
    job, _ = before.start()
    before.app.close()
    wrong = Shop(url, codec, clock)
    drain(wrong.app, within="20m")
    held = wrong.app.job(job.id)
    states = {each.state for each in wrong.app.jobs.select()}
    row = next(each for each in wrong.app.jobs.select() if each.id == job.id)
    wrong.app.close()

    assert ([], {State.READY}) == (wrong.seen, states)
    assert Hold.BAD_PAYLOAD is row.hold
    assert "App(codec=...) is missing, or has not its key" in str(row.note)
    assert held is not None
    shop = Shop(url, Encrypted(NEW, OLD), clock)
    clock.advance(timedelta(hours=1))
    drain(shop.app, within="1h")
    shop.go_on(shop.order.run("r"))
    drain(shop.app, within="1h")
    assert {"paid": SECRET} == shop.app.job(job.id).result(timeout=0)
    assert f"{SECRET} {SECRET} {SECRET} {SECRET} 2" == shop.order.run("r").result(timeout=0)
    assert f"mail {SECRET}" in shop.seen
    assert f"closed {SECRET} {SECRET}" in shop.seen
    shop.app.close()


def test_a_run_whose_steps_cannot_be_read_undoes_nothing(url: str):
    """A worker without the old key holds it: it takes the error of a value for no failure of the body."""
    clock = VirtualClock()
    before = Shop(url, Encrypted(OLD), clock)
    _, run = before.start()
    drain(before.app, within="5s")
    before.go_on(run)
    before.app.close()
    wrong = Shop(url, Encrypted(NEW), clock)
    drain(wrong.app, within="20m")
    number = wrong.order.run("r").job.id
    row = next(each for each in wrong.app.jobs.select() if each.id == number)
    wrong.app.close()

    assert (State.READY, Hold.HELD, []) == (row.state, row.hold, [each for each in wrong.seen if "back" in each])


def test_results_and_values_without_the_key_are_an_error(url: str):
    """What is read by its class raises `PayloadEncoded`."""
    before = Shop(url, Encrypted(OLD))
    job, run = before.start()
    finish(before, run)
    before.app.close()
    shop = Shop(url, None)

    for read in (
        lambda: shop.app.job(job.id).result(timeout=0),
        lambda: shop.order.run("r").value("person", str),
        shop.order.run("r").values,
    ):
        with pytest.raises(PayloadEncoded):
            read()
    shop.app.close()


class Failing(Encrypted):
    """A codec that cannot encode for a while."""

    broken = False

    def encode(self, document: bytes) -> str:
        """Encrypt a document, or fail."""
        if self.broken:
            raise RuntimeError("the key is locked")
        return super().encode(document)


def test_an_enqueue_that_cannot_be_encoded_is_refused(url: str):
    """Nothing is written, and the error names the cause."""
    codec = Failing(OLD)
    shop = Shop(url, codec)
    codec.broken = True

    with pytest.raises(CodecError, match="the key is locked"):
        shop.charge.enqueue(SECRET)
    assert () == shop.app.jobs.select()
    shop.app.close()


def test_a_result_that_cannot_be_encoded_is_written_later(url: str):
    """The worker lives on, and writes the end of the attempt when the codec works again."""
    codec = Failing(OLD)
    app = App(url, codec=codec)
    ran: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> int:
        codec.broken = number == 1 and not ran
        ran.append(number)
        return number

    async def main() -> list[int]:
        jobs = [await work.aenqueue(number) for number in (1, 2)]
        async with working(app):
            await until(lambda: bool(ran))
            codec.broken = False
            await ended(*jobs)
        return [await each.aresult() for each in jobs]

    assert [1, 2] == asyncio.run(main())
    app.close()


class Confused:
    """Returns values of wrong types for documents with a word."""

    def __init__(self, decoded: object = b"", encoded: object = "") -> None:
        self._decoded, self._encoded = decoded, encoded

    def encode(self, document: bytes) -> Any:
        """Return a document as a text; one that cannot be encoded as something else."""
        return self._encoded if b"unwritable" in document else document.decode()

    def decode(self, text: str) -> Any:
        """Return the document of a text; one that cannot be decoded as something else."""
        return self._decoded if "unreadable" in text else text.encode()


@pytest.mark.parametrize("decoded", ["text", None, 3, bytearray(b"{}")], ids=str)
def test_a_document_that_is_decoded_to_another_type_holds_only_its_job(
    url: str, decoded: object, caplog: pytest.LogCaptureFixture
):
    """The jobs behind it run; it waits with the reason, and the log names the codec and what it returned."""
    app = App(url, codec=Confused(decoded), clock=VirtualClock())

    @app.task
    def work(word: str) -> str:
        return word

    bad, *good = work.enqueue_many(["unreadable", "a", "b"])
    with caplog.at_level(logging.WARNING, "redrive.stores"):
        drain(app, within="1s")

    assert ["a", "b"] == [job.result(timeout=0) for job in good]
    assert Hold.BAD_PAYLOAD is bad.refresh().record.hold
    assert "its decode() fails, as the log says" in str(bad.record.note)
    assert "object at 0x" not in caplog.text
    assert f"(Confused) cannot decode a stored document (decode() returned {type(decoded).__name__}, and" in caplog.text
    app.close()


@pytest.mark.parametrize("decoded", [b"", b"\xff", b"[1]", b'{"word":', b'{"redrive:encoded":"unreadable"}'], ids=repr)
def test_a_document_that_is_decoded_to_another_one_holds_only_its_job(url: str, decoded: bytes):
    """As one that the code cannot read."""
    app = App(url, codec=Confused(decoded), clock=VirtualClock())

    @app.task
    def work(word: str) -> str:
        return word

    bad, good = work.enqueue_many(["unreadable", "a"])
    drain(app, within="1s")

    assert "a" == good.result(timeout=0)
    assert Hold.BAD_PAYLOAD is bad.refresh().record.hold
    app.close()


@pytest.mark.parametrize("encoded", [b"bytes", None, {"a": 1}], ids=str)
def test_what_is_encoded_to_another_type_is_refused(url: str, encoded: object):
    """The error names the codec and the type, and nothing is written."""
    app = App(url, codec=Confused(encoded=encoded), clock=VirtualClock())

    @app.task
    def work(word: str) -> str:
        return word

    with pytest.raises(
        CodecError, match=rf"\(Confused\) .* encode\(\) returned {type(encoded).__name__}, and must ret"
    ):
        work.enqueue("unwritable")
    assert () == app.jobs.select()
    app.close()


def test_a_wrong_key_is_logged_once(url: str, caplog: pytest.LogCaptureFixture):
    """The log names the error of the codec, and not the document."""
    before = Shop(url, Encrypted(OLD))
    before.start()
    before.app.close()
    wrong = Shop(url, Encrypted(NEW))
    with caplog.at_level(logging.WARNING, "redrive.stores"):
        drain(wrong.app, within="1s")
    wrong.app.close()

    assert ["InvalidToken"] == [
        "InvalidToken"
        for each in caplog.records
        if "cannot decode a stored document (InvalidToken)" in each.getMessage()
    ]


def test_apps_with_other_keys_share_a_process(tmp_path: Path):
    """Each app has its own codec, and its own database."""
    shops = [
        Shop(f"sqlite:///{tmp_path}/{name}.db", codec)
        for name, codec in (("a", Encrypted(OLD)), ("b", Encrypted(NEW)), ("c", None))
    ]
    jobs = [shop.start()[0] for shop in shops]
    for shop in shops:
        drain(shop.app, within="5s")

    assert [{"paid": SECRET}] * 3 == [job.result(timeout=0) for job in jobs]
    for shop in shops:
        shop.app.close()


def test_a_transaction_of_a_handler_is_encoded(url: str):
    """What ``ctx.transaction()`` writes for its job, and what it enqueues, passes the codec too."""
    app = App(url, codec=Encrypted(OLD), clock=VirtualClock())

    @app.task(name="mail")
    def mail(person: str) -> None:
        """Do nothing."""

    @app.task(name="work")
    def work(ctx: Context, person: str) -> str | None:
        with ctx.transaction():
            mail.enqueue(person)
            ctx.set_result(person)
        return person

    @app.task(name="awork")
    async def awork(ctx: Context, person: str) -> str | None:
        async with ctx.transaction():
            await mail.aenqueue(person)
            ctx.set_result(person)
        return person

    jobs = [work.enqueue(SECRET), awork.enqueue(SECRET)]
    drain(app)

    assert [SECRET, SECRET] == [job.result(timeout=0) for job in jobs]
    assert ([], 4, 2) == (plain(url), len(stored(url)["redrive_payloads"]), len(stored(url)["redrive_results"]))
    app.close()


@pytest.mark.parametrize(("way", "passed"), [("deadline", False), ("skip", True)])
def test_a_dead_letter_is_written_by_a_process_with_the_key(url: str, way: str, passed: bool):
    """It is encoded in the database. Without the key an event stays dead, and its note says so."""
    letters: list[Any] = []
    clock = VirtualClock()

    def opened(codec: Any) -> App:
        app = App(url, codec=codec, clock=clock)
        orders, failed = app.topic("orders", Begin), app.topic("failed", DeadLetter[Begin])
        retry = Policy(on=Exception, attempts=4, backoff=Backoff.constant("1h"), deadline="90m")

        @orders.subscribe("ship", retry=retry, dead="topic:failed", order="key")
        def ship(order: Begin) -> None:
            raise OSError("no lorry")

        @failed.subscribe("log")
        def log(letter: DeadLetter[Begin]) -> None:
            letters.append((letter.event.person, letter.error))

        drain(app, within=0)
        return app

    app = opened(Encrypted(NEW))
    app.topics.declared["orders"].publish(Begin(SECRET), key="k")
    drain(app, within="1m")
    app.close()
    with contextlib.closing(opened(None)) as keyless:
        (job,) = keyless.jobs.select(Filter(task="orders.ship"))
        if way == "skip":
            keyless.topics.subscription("orders", "ship").skip()
        drain(keyless, within="5h")
        record = keyless.job(job.id).record
        assert (State.DEAD, passed, []) == (record.state, record.skipped_at is not None, letters)
        assert record.note.endswith(", not published to the topic failed: this process cannot decode the event")
    with contextlib.closing(opened(Encrypted(NEW))) as app:
        app.job(job.id).retry()
        drain(app)
        assert [(SECRET, "no lorry")] == letters
        assert plain(url) == []


RESERVED = {"redrive:encoded": SECRET}


class Odd(msgspec.Struct, rename={"value": "redrive:encoded"}):
    """An event, or data, of a class whose JSON begins as an encoded document."""

    value: str


@pytest.mark.parametrize("codec", [None, Encrypted(NEW)], ids=["no codec", "codec"])
def test_no_document_that_begins_as_an_encoded_one_is_stored(tmp_path: Path, codec: Any):
    """It is refused where it is written: readers would take it for a document of another key, and wait."""
    app = App(f"sqlite:///{tmp_path}/a.db", codec=codec, clock=VirtualClock())
    topic, machine = app.topic("t", dict), app.machine("m", data=Odd)
    bodies: list[str] = []

    @machine.start
    def opened(event: Odd) -> None:
        """Do nothing."""

    @app.workflow(name="waits")
    async def waits(flow: Flow) -> None:
        try:
            flow.set("redrive:encoded", 1)
        except PayloadError as error:
            bodies.append(str(error))
        await flow.wait_for("go", dict)

    run = waits.start(id="r")
    drain(app, within="1s")
    for write in (
        lambda: topic.publish(RESERVED),
        lambda: run.signal("go", RESERVED),
        lambda: app.emit("news", RESERVED),
        lambda: machine.send("k", Odd("x")),
        lambda: machine.codec.write(Odd("x")),
        lambda: app.named("unknown").enqueue(**RESERVED),
    ):
        with pytest.raises(PayloadError, match='cannot begin with "redrive:encoded": redrive knows encoded'):
            write()
    assert 1 == len(bodies)
    run.signal("go", {"inside": RESERVED})
    drain(app)
    assert run.state is State.SUCCEEDED
    app.close()


def test_a_result_that_begins_as_an_encoded_document_is_a_bad_result():
    """The job, and the run with such a step, die and name the cause; nothing waits."""
    app = App("memory://", clock=VirtualClock())

    @app.task(name="work")
    def work() -> dict[str, str]:
        return RESERVED

    @app.workflow(name="runs")
    async def runs(flow: Flow) -> dict[str, str]:
        return await flow.step(_reserved)

    job, run = work.enqueue(), runs.start()
    drain(app)

    for record in (app.job(job.id).record, run.job.record):
        assert State.DEAD is record.state
        assert 'cannot begin with "redrive:encoded"' in record.error
    app.close()


def _reserved() -> dict[str, str]:
    return RESERVED


def test_an_archive_stays_encoded(tmp_path: Path):
    """Lines of an archive have documents as the database has them."""
    lines: list[bytes] = []
    clock = VirtualClock()
    app = App(f"sqlite:///{tmp_path}/a.db", codec=Encrypted(OLD), clock=clock)
    app.task(name="echo")(_echo).enqueue(SECRET)
    drain(app)
    clock.advance(timedelta(days=30))
    app.jobs.archive(Filter(finished_before=clock.now()), to=lines.extend)

    assert (1, False) == (len(lines), any(SECRET.encode() in each for each in lines))
    assert 2 == lines[0].count(b"redrive:encoded")
    app.close()


def _echo(person: str) -> str:
    return person


@pytest.mark.parametrize("codec", [None, Encrypted(NEW)], ids=["no codec", "another key"])
def test_screens_without_the_key_show_that_documents_are_encoded(tmp_path: Path, codec: Any):
    """Each page of the dashboard answers, finds by tags, and shows neither a document nor an encrypted text."""
    url = f"sqlite:///{tmp_path}/app.db"
    clock = VirtualClock()
    before = Shop(url, Encrypted(OLD), clock)
    job, run = before.start()
    finish(before, run)
    before.app.close()
    shop = Shop(url, codec, clock)
    operator = Operator(shop.app)
    shown = operator.read(f"/jobs/{job.id}")
    pages = [
        operator.get(path, headers={"Accept": "text/html"})
        for path in (
            "/",
            "/jobs",
            f"/jobs/{job.id}",
            "/runs",
            "/runs/order/r",
            "/machines/door",
            "/topics/paid/mail",
            "/errors",
        )
    ]

    assert [200] * len(pages) == [page.status_code for page in pages]
    assert not any(text in page.text for page in pages for text in ("gAAAA", "redrive:encoded"))
    assert NO_KEY in str(shown)
    assert NO_KEY in pages[2].text
    assert str(job.id) in operator.get(f"/find?q={SECRET}").text
    shop.app.close()


def test_a_process_with_the_key_shows_documents(tmp_path: Path):
    """The dashboard of an App with its codec reads as without one, and searches in arguments."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db", Encrypted(OLD))
    job, _ = shop.start()
    drain(shop.app, within="5s")
    shown = Operator(shop.app).read(f"/jobs/{job.id}")

    assert SECRET in str(shown)
    assert {job.id} < {each.id for each in shop.app.jobs.select(Filter(args=SECRET))}
    shop.app.close()
