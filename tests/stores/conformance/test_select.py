"""Selection of jobs by filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from redrive.engine.bulk import BulkAction, BulkOptions, scoped
from redrive.engine.lifecycle import State
from redrive.engine.records import NEWEST, Filter, Hold
from redrive.errors import StoreError
from redrive.stores.operations import admin, bulk, jobs, redriving
from redrive.stores.query import Operation, Query, Statements
from tests.stores.helpers import FATAL, Harness, failed, new


def ids(store: Harness, **conditions) -> list[int]:
    """Return the ids of the matching jobs, oldest first."""
    wanted = Filter(**{"oldest_first": True} | conditions)
    return [job.id for job in store.do(admin.select(wanted))]


@pytest.fixture
def full(store: Harness) -> Harness:
    """Return a store with these jobs: 1 dead and caught by 2, 3 dead, 4 failed and ready, 5 ready, 6 running."""
    store.end(store.take(new("pay", retry="2 1s catch mend", queue="money")), FATAL)
    store.end(store.take())
    store.end(store.take(new("send", queue="mail")), FATAL)
    store.end(store.take(new("send", queue="mail")), failed("100% of 'it' timed_out", reason="TIMEOUT"))
    store.enqueue(new("pay", queue="money", delay=99), new("look"))
    store.take()
    return store


@pytest.mark.parametrize("oldest_first", [True, False])
def test_failed_attempts_of_refreshes_are_not_among_dead_jobs(store: Harness, oldest_first: bool):
    """Dead jobs without conditions on refreshes are those of users; ids and `refreshes` name the others, too."""
    store.end(store.take(structs.replace(new(retry="0"), origin="refresh:tables/a")), FATAL)
    store.end(store.take(new(retry="0")), FATAL)
    dead = {"state": State.DEAD, "oldest_first": oldest_first}

    assert [2] == ids(store, **dead)
    assert [2] == ids(store, caught=False, **dead)
    assert [1, 2] == sorted(ids(store, refreshes=True, **dead))
    assert [1, 2] == sorted(ids(store, ids=(1, 2), **dead))
    assert [1, 2] == sorted(ids(store, oldest_first=oldest_first))
    assert (1, 0) == (store.do(admin.stats()).dead, store.do(admin.stats()).caught)
    assert (2,) == store.do(redriving.redrive(Filter())).ids


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"ids": (2, 4, 404)}, [2, 4]),
        ({"ids": ()}, []),
        ({"state": State.DEAD}, [1, 3]),
        ({"state": State.READY}, [4, 5]),
        ({"state": State.RUNNING}, [6]),
        ({"state": State.SUCCEEDED}, [2]),
        ({"state": State.CANCELLED}, []),
        ({"task": "send"}, [3, 4]),
        ({"task": "nobody's"}, []),
        ({"queue": "money"}, [1, 2, 5]),
        ({"reason": "TIMEOUT"}, [4]),
        ({"error": "no such"}, [1, 3]),
        ({"error": "100% of 'it'"}, [4]),
        ({"error": "timed%out"}, []),
        ({"error": "NO SUCH"}, []),
        ({"caught": True}, [1]),
        ({"caught": False}, [2, 3, 4, 5, 6]),
        ({"caught": False, "state": State.DEAD}, [3]),
        ({"after_id": 3}, [4, 5, 6]),
        ({"task": "pay", "queue": "money", "state": State.READY}, [5]),
        ({"task": "pay", "queue": "mail"}, []),
        ({"limit": 2}, [1, 2]),
        ({"limit": 0}, []),
        ({"oldest_first": False, "limit": 2}, [6, 5]),
        ({"oldest_first": False, "after_id": 4}, [6, 5]),
    ],
    ids=str,
)
def test_all_conditions_must_hold(full: Harness, conditions: dict[str, object], expected: list[int]):
    """Filters match the jobs that fulfil every given condition, in the requested order."""
    assert expected == ids(full, **conditions)


def test_jobs_with_one_hold_are_ordered_by_due_time(store: Harness):
    """Jobs with one hold are returned in the order of their due times, unless ordered by id."""
    store.enqueue(new(delay=50), new(delay=10), new("other", delay=5), new(delay=30), new())

    assert [3, 2, 4, 1] == ids(store, hold=Hold.DELAY, oldest_first=False)
    assert [2, 4] == ids(store, hold=Hold.DELAY, oldest_first=False, task="send", limit=2)
    assert [1, 2, 3, 4] == ids(store, hold=Hold.DELAY)
    assert [] == ids(store, hold=Hold.RETRY)


def test_large_and_small_selections_agree(full: Harness, monkeypatch: pytest.MonkeyPatch):
    """If more jobs match than are read by id, the same jobs are found in the same order."""
    monkeypatch.setattr(admin, "FEW", 2)

    assert [4, 5] == ids(full, state=State.READY)
    assert [5, 4] == ids(full, state=State.READY, oldest_first=False)
    assert [3, 1] == ids(full, state=State.DEAD, oldest_first=False)
    assert [4] == ids(full, hold=Hold.RETRY)


def test_the_default_limit_is_a_hundred(store: Harness):
    """Without a limit the newest hundred jobs are returned, newest first."""
    store.enqueue(*[new() for _ in range(120)])

    assert list(range(120, 20, -1)) == [job.id for job in store.do(admin.select(Filter()))]


def test_selected_rows_equal_those_of_get(full: Harness):
    """Selected jobs equal the jobs read by id."""
    assert all(job == full.job(job.id) for job in full.jobs())


def page(store: Harness, budget: int, **conditions) -> tuple[list[int], int | None]:
    """Return the ids on a page, and the id down to which it was searched."""
    found = store.do(admin.page(Filter(**conditions), budget=budget))
    return [job.id for job in found.jobs], found.searched_to


@pytest.mark.parametrize(
    ("conditions", "budget", "expected"),
    [
        ({}, 100, ([6, 5, 4, 3, 2, 1], None)),
        ({"limit": 2}, 3, ([6, 5], None)),
        ({"limit": 2, "before_id": 5}, 3, ([4, 3], None)),
        ({"task": "send"}, 2, ([], 5)),
        ({"task": "send", "before_id": 5}, 2, ([4, 3], 3)),
        ({"task": "pay", "before_id": 3}, 2, ([1], 1)),
        ({"task": "pay", "before_id": 3}, 3, ([1], None)),
        ({"task": "pay", "before_id": 1}, 3, ([], None)),
        ({"state": State.DEAD}, 1, ([3, 1], None)),
        ({"hold": Hold.RETRY}, 1, ([4], None)),
        ({"ids": (1, 5)}, 1, ([5, 1], None)),
    ],
)
def test_a_page_reads_a_bounded_number_of_jobs(
    full: Harness, conditions: dict[str, object], budget: int, expected: tuple[list[int], int | None]
):
    """Pages have the matches among the newest jobs, and the id from which to search on."""
    assert expected == page(full, budget, **conditions)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, ([3], 3)),
        ({"before_id": 3}, ([1], 1)),
        ({"before_id": 1}, ([], None)),
        ({"caught": False}, ([3], 3)),
        ({"caught": True}, ([1], 1)),
        ({"queue": "none"}, ([], 3)),
    ],
)
def test_many_dead_jobs_are_paged_by_their_index(
    full: Harness,
    monkeypatch: pytest.MonkeyPatch,
    conditions: dict[str, object],
    expected: tuple[list[int], int | None],
):
    """Dead jobs that are many are found below any number of newer jobs, from the index of dead jobs."""
    monkeypatch.setattr(admin, "FEW", 1)

    assert expected == page(full, 1, state=State.DEAD, **conditions)


SECRET = "hunter7secret"
GUESSES = ("token=h", "token=hunter7", "hunter", "secret", "r7s", f"token={SECRET}")


def _refused(store: Harness, payload: bytes, count: int = 1, retry: str = "0") -> list[int]:
    """Let jobs die with an error that repeats a secret and another argument."""
    claims = [store.take(new(retry=retry, payload=payload)) for _ in range(count)]
    for claim in claims:
        store.end(claim, failed(f"401 for order-17, token={SECRET}", permanent="no"))
    return [claim.id for claim in claims]


PAYLOAD = b'{"order": "order-17", "token": "hunter7secret"}'

WAYS: list[dict[str, Any]] = [
    {},
    {"oldest_first": False},
    {"state": State.DEAD},
    {"state": State.DEAD, "oldest_first": False},
    {"state": State.DEAD, "caught": False},
    {"task": "send"},
]


def test_errors_are_searched_as_they_are_shown(store: Harness):
    """No part of a secret argument is found, but the mark in its place is; so are other arguments, unless hidden."""
    found = _refused(store, PAYLOAD)
    _refused(store, b'{"token": ""}')
    store.end(store.take(new(retry="0")), FATAL)
    for way in WAYS:
        assert found == ids(store, error="token=[redacted]", **way)
        assert found == ids(store, error="[redacted]", **way)
        assert [[2]] * len(GUESSES) == [ids(store, error=each, **way) for each in GUESSES]
        assert {1, 2} == set(ids(store, error="order-17", **way))
        assert [2] == ids(store, error="order-17", hidden=True, **way)
        assert [1] == ids(store, error="for [redacted], token=[redacted]", hidden=True, **way)


def test_a_search_for_errors_goes_on_behind_secrets(store: Harness):
    """Jobs in which only a secret has the text neither fill a list nor end it."""
    _refused(store, PAYLOAD, 5)
    found = _refused(store, b"{}", 2)
    _refused(store, PAYLOAD, 5)
    for way in WAYS:
        limited = [ids(store, error="hunter7", limit=most, **way) for most in (1, 2, 3)]
        first = found if way.get("oldest_first", True) else found[::-1]
        assert [first[:1], first, first] == limited

    assert tuple(found) == store.do(redriving.dry_run(Filter(error="hunter7", limit=2))).ids


def test_a_catch_job_is_searched_without_the_secrets_of_its_job(store: Harness):
    """A catch job has the arguments of the job that it catches, and its error may repeat them."""
    _refused(store, PAYLOAD, retry="0 catch mend")
    store.end(store.take(), failed(f"cannot mend token={SECRET}"))

    assert [2] == ids(store, error="cannot mend token=[redacted]")
    assert [] == ids(store, error="mend token=hunter7")


def test_a_page_of_jobs_has_no_secrets(store: Harness):
    """The list of the dashboard neither finds a secret nor ends early because of one."""
    _refused(store, PAYLOAD, 3)
    (found,) = _refused(store, b"{}")
    _refused(store, PAYLOAD, 3)
    pages = [store.do(admin.page(Filter(error="hunter7", limit=5), budget=budget)) for budget in (100, 4)]
    dead = store.do(admin.page(Filter(error="hunter7", state=State.DEAD), budget=100))

    assert [[found], [found]] == [[job.id for job in page.jobs] for page in pages]
    assert [None, 4] == [page.searched_to for page in pages]
    assert [found] == [job.id for job in dead.jobs]


def test_bulk_operations_search_without_secrets(store: Harness):
    """What an operation would change does not show a secret either, nor does an operation change by one."""
    _refused(store, PAYLOAD, 2)
    wanted = scoped(BulkAction.REDRIVE, Filter(error="hunter7", limit=NEWEST))
    found = store.do(bulk.preview(BulkAction.REDRIVE, wanted, BulkOptions(), now=store.now))
    hidden = scoped(BulkAction.REDRIVE, Filter(error="order-17", hidden=True, limit=NEWEST))
    number = store.do(bulk.start(replace(found, wanted=hidden), actor="ann", now=store.now)).id
    while store.do(bulk.carry_out(number, now=store.now)) is not None:
        pass

    assert (0, 0, True) == (found.changes, found.kept, found.is_whole)
    assert 0 == store.do(bulk.get(number)).done


LONE = "a\ud800"
"""A text with a lone surrogate, which UTF-8 does not have."""


@pytest.mark.parametrize(
    "operation",
    [
        lambda: admin.select(Filter(error=LONE)),
        lambda: admin.select(Filter(task=LONE)),
        lambda: admin.select(Filter(tag=LONE)),
        lambda: admin.cancel_all(Filter(), why=LONE, actor="ann"),
        lambda: admin.cancel_all(Filter(), why="enough", actor=LONE),
        lambda: jobs.enqueue([new(LONE)]),
        lambda: jobs.enqueue([new(), new(LONE)]),
        lambda: jobs.enqueue([structs.replace(new(), key=LONE)]),
    ],
    ids=["error", "task", "tag", "reason", "actor", "one", "many", "key"],
)
def test_texts_that_no_database_stores_are_refused(store: Harness, operation: Callable[[], Operation[Any]]):
    """Lone surrogates are an error of the store, and not of Python; nothing is written, and the store can be used."""
    job = store.job(store.put())
    with pytest.raises(StoreError) as refused:
        store.do(operation())

    assert StoreError is type(refused.value)
    assert (job,) == store.jobs()


def _read(store: Harness, operation: Operation[Any]) -> tuple[Any, list[tuple[Query, int]]]:
    """Run an operation; return its result, and its statements with the number of rows that each has returned."""
    seen: list[tuple[Query, int]] = []

    def watched() -> Statements[Any]:
        """Note statements and rows."""
        answer: Any = None
        while True:
            try:
                query = operation.steps.send(answer)
            except StopIteration as end:
                return end.value
            assert isinstance(query, Query)
            answer = yield query
            seen.append((query, len(answer)))

    return store.do(replace(operation, steps=watched())), seen


@pytest.mark.parametrize("kind", ["redacted", "hidden"])
def test_a_search_reads_the_same_for_right_and_wrong_guesses(
    store: Harness, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """What a search reads does not show a secret either: no statement has the text, and none depends on it."""
    monkeypatch.setattr(admin, "_AT_ONCE", 3)
    for _ in range(2):
        _refused(store, PAYLOAD, 4)
        _refused(store, PAYLOAD, 1, retry="0 catch mend")
        store.end(store.take(), failed(f"cannot mend token={SECRET}"))
        store.end(store.take(new(retry="3 1h", payload=PAYLOAD)), failed(f"later {SECRET}"))

    def reads(text: str) -> list[Any]:
        """Search for a text in each way; return the results and what was read."""
        some: list[Operation[Any]] = []
        for way in [*WAYS, {"hold": Hold.RETRY}, {"ids": (1, 2, 3, 4)}, {"oldest_first": True, "limit": 2}]:
            wanted = Filter(error=text, **{kind: True}, **way)
            some += [admin.select(wanted), admin.page(wanted, budget=100), admin.page(wanted, budget=5)]
        for action in (BulkAction.REDRIVE, BulkAction.CANCEL):
            wanted = scoped(action, Filter(error=text, limit=NEWEST, **{kind: True}))
            some.append(bulk.preview(action, wanted, BulkOptions(), now=store.now))
        return [_read(store, each) for each in some]

    right, wrong = reads("token=hunter7secret"), reads("token=wrong7guess00")

    assert [seen for _, seen in right] == [seen for _, seen in wrong]
    assert all("hunter" not in repr(query) for _, seen in right for query, _ in seen)
    assert sum(count for _, seen in right for _, count in seen) > 100
    assert not any(found for found, _ in right if isinstance(found, tuple))


def test_a_redacted_search_finds_what_any_search_finds(store: Harness, monkeypatch: pytest.MonkeyPatch):
    """The rows that are read for it, some at a time, have the same jobs, in the same order."""
    monkeypatch.setattr(admin, "_AT_ONCE", 2)
    _refused(store, PAYLOAD, 7)
    store.end(store.take(new(retry="0")), FATAL)
    for way in WAYS:
        for limit in (0, 1, 3, 5, 100):
            given = {"error": "token=[redacted]", "limit": limit, **way}
            assert ids(store, **given) == ids(store, redacted=True, **given)
    wanted = Filter(error="token=[redacted]", redacted=True)
    assert [7, 6, 5, 4, 3, 2, 1] == [job.id for job in store.do(admin.page(wanted, budget=100)).jobs]


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
def test_an_operation_by_errors_reads_some_jobs_at_a_time(
    store: Harness, state: State, monkeypatch: pytest.MonkeyPatch
):
    """The preview of an operation by errors ends after a number of jobs; its batches change all that match."""
    monkeypatch.setattr(bulk, "READ", 15)
    monkeypatch.setattr(bulk, "STRIDE", 10)
    found = _refused(store, PAYLOAD, 7) if state is State.DEAD else []
    for _ in range(7 if state is State.CANCELLED else 0):
        claim = store.take(new(retry="3 1h", payload=PAYLOAD))
        store.end(claim, failed(f"401 for order-17, token={SECRET}"))
        store.do(admin.cancel(claim.id, now=store.now))
        found.append(claim.id)
    wanted = scoped(BulkAction.REDRIVE, Filter(error="token=[redacted]", redacted=True, state=state, limit=NEWEST))
    preview = store.do(bulk.preview(BulkAction.REDRIVE, wanted, BulkOptions(), now=store.now))
    number = store.do(bulk.start(preview, actor="ann", now=store.now)).id
    batches = []
    while (done := store.do(bulk.carry_out(number, now=store.now))) is not None:
        batches.append(done.ids)

    assert (3, False) == (preview.changes, preview.is_whole)
    assert tuple(found) == tuple(each for ids in batches for each in ids)
    assert len(batches) > 3


def test_a_list_of_jobs_that_wait_goes_on_behind_secrets(store: Harness):
    """Jobs that wait are in the order of their due times, so that more of them are read from the first on."""
    claims = [store.take(new(retry="3 1h", payload=each)) for each in (PAYLOAD, PAYLOAD, b"{}")]
    for claim in claims:
        store.end(claim, failed(f"401 for {SECRET}"))

    assert [3] == ids(store, error="hunter7", hold=Hold.RETRY, oldest_first=False, limit=1)


def test_errors_are_searched_without_the_secrets_of_the_progress(store: Harness):
    """An error may repeat what its handler has reported."""
    claim = store.take(new(retry="0"))
    store.report((claim, '{"token": "hunter7secret"}'))
    store.end(claim, failed(f"401 for token={SECRET}", permanent="no"))

    assert [] == ids(store, error="hunter7")
    assert [1] == ids(store, error="token=[redacted]", redacted=True)
