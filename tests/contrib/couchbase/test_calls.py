"""Operations of ``acouchbase`` under an orchestrator: stand-ins for its methods, the SDK's own exceptions."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.errors import AmbiguousTimeout, CircuitOpen, UnambiguousTimeout
from redrive.orchestrator import BreakerSettings, FailFast, Orchestrator, RetryAction
from tests.contrib.couchbase.sdk_errors import exceptions, kv_error, needed, query_error

calls = needed("redrive.contrib.couchbase.calls")
couchbase_options = needed("couchbase.options")
N1QLQuery = needed("couchbase.logic.n1ql").N1QLQuery

AMBIGUOUS, UNAMBIGUOUS = 13, 14
BUSY = '{"errors":[{"code":99999,"msg":"busy","retry":true}]}'
AT_ONCE = Orchestrator(strategy=lambda _request, _reason: RetryAction(0))


class Collection:
    """What is used of an ``AsyncCollection``: it plays a script and notes its calls."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []

    async def _play(self, *args, **options):
        self.asked.append((args, options))
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def get(self, *args, **options):
        """Read."""
        return await self._play(*args, **options)

    async def upsert(self, *args, **options):
        """Write."""
        return await self._play(*args, **options)


class Result:
    """What is used of a ``QueryResult``: rows that may end in an error."""

    def __init__(self, *steps):
        self.steps = steps

    async def rows(self):
        """Stream them."""
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step


class Cluster:
    """What is used of an ``AsyncCluster``: each request has a result."""

    def __init__(self, *results):
        self.results = list(results)
        self.asked = []

    def query(self, statement, *_objects, **options):
        """Ask for rows."""
        self.asked.append((statement, options))
        return self.results.pop(0)

    def ping(self):
        """Not a request for rows."""


def kv(collection, method="upsert", orchestrator=AT_ONCE, **options):
    """Call a method of a collection; its result or its error."""
    return _ended(calls.CouchbaseCalls(orchestrator).kv(getattr(collection, method), "key", "value", **options))


def rows(cluster, orchestrator=AT_ONCE, **options):
    """Ask a cluster for rows; the rows or the error."""
    return _ended(calls.CouchbaseCalls(orchestrator).rows(cluster.query, "SELECT 1", **options))


def _ended(coroutine):
    async def _steps():
        try:
            return await coroutine
        except Exception as error:  # noqa: BLE001 - what it ended with is what tests look at
            return error

    return asyncio.run(_steps())


def test_a_key_value_operation_gets_its_arguments_and_the_remaining_time():
    """Key-value methods are called once, with their arguments and the remaining time."""
    collection = Collection("stored")

    assert "stored" == kv(collection, timeout="10s", expiry=5)
    [(args, options)] = collection.asked
    assert (("key", "value"), 5) == (args, options["expiry"])
    assert 9 < options["timeout"].total_seconds() <= 9.5


@pytest.mark.parametrize("code", [7, 103, 2, 4])
def test_a_key_value_operation_is_not_retried_once_more(code):
    """Key-value operations are not retried again: the SDK's error is raised."""
    raised = kv_error(code)
    collection = Collection(raised)

    assert raised is kv(collection)
    assert (1, None) == (len(collection.asked), raised.__cause__)


def test_an_ambiguous_timeout_is_raised_as_such():
    """Ambiguous timeouts are raised as such, with the SDK's error as the cause."""
    raised = kv_error(AMBIGUOUS, reasons=["key_value_locked"], attempts=2)

    error = kv(Collection(raised))

    assert AmbiguousTimeout is type(error)
    assert raised is error.__cause__
    assert "AmbiguousTimeout: the SDK retried 2 times (KV_LOCKED), last sent to 10.0.0.1:11210" in error.__notes__
    assert ("10.0.0.1:11210", True) == (error.__retry__.endpoint, error.__retry__.is_ambiguous)


def test_a_read_that_timed_out_is_unambiguous():
    """Reads that time out are unambiguous."""
    assert UnambiguousTimeout is type(kv(Collection(kv_error(AMBIGUOUS)), "get"))


def test_a_wrong_exception_class_is_corrected():
    """Errors of a wrong class are raised as the class of their code."""
    error = kv(Collection(kv_error(101, reasons=["key_value_temporary_failure"])))

    assert exceptions.DocumentNotFoundException is type(error)


def test_timeouts_open_the_breaker():
    """Timeouts of the SDK are failures of the service: after enough of them nothing is sent."""
    orchestrator = Orchestrator(strategy=FailFast(), breaker=BreakerSettings(volume_threshold=2))
    collection = Collection(kv_error(AMBIGUOUS), kv_error(UNAMBIGUOUS))

    kinds = [type(kv(collection, orchestrator=orchestrator)) for _ in range(3)]

    assert [AmbiguousTimeout, UnambiguousTimeout, CircuitOpen] == kinds


def test_queries_are_retried_until_rows_arrive():
    """Refused queries are repeated; no row of an unfinished result is returned."""
    cluster = Cluster(Result(query_error(5, body=BUSY)), Result(1, query_error(5, body=BUSY)), Result(1, 2))

    assert [1, 2] == rows(cluster)
    assert ["SELECT 1"] * 3 == [statement for statement, _ in cluster.asked]


def test_a_lost_query_that_writes_is_not_retried():
    """Statements that were lost in flight are repeated only if they are read-only."""
    lost = [query_error(2, http_status=0) for _ in range(2)]
    cluster, reading = Cluster(Result(lost[0])), Cluster(Result(lost[1]), Result("row"))

    assert lost[0] is rows(cluster)
    assert ["row"] == rows(reading, read_only=True)
    assert True is reading.asked[1][1]["read_only"]


@pytest.mark.parametrize(
    ("options", "keywords", "expected"),
    [
        ([{"read_only": True}], {}, "row"),
        ([{"read_only": False}], {"read_only": True}, "row"),
        ([{"read_only": True}], {"read_only": False}, None),
        ([{"read_only": True}, {"metrics": True}], {}, None),  # which one counts is not promised
        ([{}], {}, None),
    ],
)
def test_options_are_read_as_the_sdk_reads_them(options, keywords, expected):
    """Options objects mark a statement as read-only, too, and a keyword overrides them."""
    lost = query_error(2, http_status=0)
    cluster = Cluster(Result(lost), Result("row"))
    given = [couchbase_options.QueryOptions(**each) for each in options]

    found = _ended(calls.CouchbaseCalls(AT_ONCE).rows(cluster.query, "SELECT 1", *given, **keywords))

    assert ([expected] if expected else lost) == found
    sent = N1QLQuery.create_query_object("SELECT 1", *given, **keywords)
    assert sent.readonly or expected is None


def test_an_option_that_the_sdk_would_misread_is_refused():
    """``readonly`` would become a parameter of the statement, which then may write and be repeated."""
    cluster = Cluster(Result("row"))

    assert TypeError is type(rows(cluster, readonly=True))
    assert [] == cluster.asked


def test_a_refused_retry_raises_the_exception_of_the_sdk():
    """Under fail fast the caller gets the SDK's exception, with what is known of the request."""
    raised = query_error(5, body=BUSY)
    error = rows(Cluster(Result(raised)), Orchestrator(strategy=FailFast()))

    assert raised is error
    assert 0 == error.__retry__.retry_attempts


def test_a_method_that_gives_no_rows_is_refused():
    """Methods of an unknown service are refused."""
    assert KeyError is type(_ended(calls.CouchbaseCalls().rows(Cluster().ping)))


def test_the_deadline_of_the_orchestrator_holds_for_all_attempts():
    """Services that refuse until the deadline cause an unambiguous timeout."""
    cluster = Cluster(*(Result(query_error(5, body=BUSY)) for _ in range(2)))
    waiting = Orchestrator(strategy=lambda _request, _reason: RetryAction("1h"))

    error = rows(cluster, waiting, timeout="500ms")

    assert (UnambiguousTimeout, 1) == (type(error), len(cluster.asked))


@pytest.mark.case("events/prepared")
def test_preparing_a_statement_again_is_logged(caplog):
    """Statements that are prepared anew are logged as DEBUG: delay, reason and cause."""
    forgotten = query_error(5, first=(4050, "no such prepared statement"))

    with caplog.at_level("DEBUG", logger="redrive.orchestrator"):
        assert [1] == rows(Cluster(Result(forgotten), Result(1)))

    [record] = caplog.records
    event = record.event
    assert ("DEBUG", timedelta(0)) == (record.levelname, event.delay)
    assert ("QUERY_PREPARED_STATEMENT_FAILURE", forgotten) == (event.reason.name, event.cause)
