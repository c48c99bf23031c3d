"""Scripts of operations on PostgreSQL, executed by hand: the number and order of their statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.engine.outcome import Succeeded
from redrive.engine.records import KeyUntil
from redrive.engine.runs import RunRecord, StepKind
from redrive.engine.steps import StepBatch
from redrive.errors import StoreBusy, StoreError
from redrive.stores.drivers.postgres import PostgresSettings
from redrive.stores.drivers.postgres.script import Script, Statement, full_script, inner_script
from redrive.stores.drivers.postgres.statements import composed
from redrive.stores.operations import admin, attempts, clock, jobs, leases, queues, workers
from redrive.stores.operations.leases import Ending, Settled
from redrive.stores.operations.runs import start, steps
from redrive.stores.query import Compound, Operation, Query, Statements, writes
from tests.engine.helpers import claim
from tests.stores.helpers import LONG, T0, new
from tests.stores.runs import run, step

OURS = PostgresSettings("postgresql:///d", "PostgreSQL")
POOLED = changed(OURS, pgbouncer=True)
KEYED = replace(new(), key="k", key_until=KeyUntil.END)
TWO = [jobs.NumberBlock(T0, 1, 2)]
PLACED = [jobs.EnqueuedJob(1, T0)]
GATE = [jobs.NumberBlock(T0, 1, 1)]
STARTED, TAKEN = [start.StartedRow(1, T0, "order-42")], [start.StartedRow(1, T0, None)]
SAME = RunRecord(5, "checkout", "order-42", 1, run().digest)
NEVER, DUE = leases.NextDue(T0, None, None), leases.NextDue(T0, T0, None)


NOW = [clock.Instant(T0)]


def settling(outcome: Succeeded) -> Operation[Settled]:
    """Return the operation that settles one attempt."""
    return leases.settle([Ending(claim(), outcome, 0.0)])


def play_script(script: Script[Any], *answers: Sequence[Any]) -> tuple[Any, list[str]]:
    """Execute a script with prepared answers; return its result and its statements in short."""
    written_statements = []
    rows: Sequence[Any] | None = None
    left = list(answers)
    try:
        while True:
            each = script.send(rows)
            written_statements.append(short(each))
            rows = left.pop(0) if each.values is not None else []
    except StopIteration as stop:
        return stop.value, written_statements


def short(each: Statement) -> str:
    """Return "ask" or the tables that a statement writes, and "tell" if it notifies."""
    if each.values is None:
        return each.text.partition(" ISOLATION")[0]
    written = [
        word for word in ("jobs", "keys", "payloads", "policies") if f'INTO "redrive".redrive_{word}' in each.text
    ]
    tells = OURS.channel in each.values or f"pg_notify('{OURS.channel}'" in each.text
    return " ".join(written + ["tell"] * tells) or "ask"


def yes() -> bool:
    """There are news."""
    return True


@pytest.mark.parametrize(
    ("build", "answers", "settings", "expected"),
    [
        (lambda: jobs.enqueue([new()]), [PLACED], OURS, ["jobs payloads policies tell"]),
        (lambda: jobs.enqueue([replace(new(), tags=("t",))]), [PLACED], OURS, ["jobs payloads policies tell"]),
        (lambda: jobs.enqueue([new(), new()]), [TWO, []], OURS, ["ask", "jobs payloads policies tell"]),
        (lambda: jobs.enqueue([KEYED]), [GATE, [(1,)], []], OURS,
         ["ask", "BEGIN", "keys", "jobs payloads policies", 'NOTIFY "redrive.redrive"; COMMIT']),
        (lambda: jobs.enqueue([new()]), [PLACED], POOLED,
         ["BEGIN", "jobs payloads policies", 'NOTIFY "redrive.redrive"; COMMIT']),
        (lambda: jobs.enqueue([new()]), [PLACED], changed(OURS, notify=False), ["jobs payloads policies"]),
        (lambda: jobs.enqueue([]), [], OURS, []),
        (lambda: start.start([run()]), [STARTED], OURS, ["jobs payloads policies tell"]),
        (lambda: start.start([run()]), [STARTED], POOLED,
         ["BEGIN", "jobs payloads policies", 'NOTIFY "redrive.redrive"; COMMIT']),
        (lambda: start.start([run()]), [TAKEN, [SAME]], OURS, ["jobs payloads policies tell", "ask"]),
        (lambda: leases.claim(1, 1, lease_for=LONG), [[NEVER]], OURS, ["ask"]),
        (lambda: leases.claim(1, 1, lease_for=LONG), [[DUE], [claim()]], OURS, ["ask", "ask"]),
        (lambda: leases.claim(1, 1, lease_for=LONG), [[DUE], [], []], OURS, ["ask", "ask", "BEGIN", "ask", "COMMIT"]),
        (lambda: leases.claim(1, 1, lease_for=LONG), [[DUE], [claim()]], POOLED,
         ["BEGIN", "ask", "ask", "COMMIT"]),
        (lambda: queues.present("mail", now=T0), [[]], OURS, ["BEGIN", "ask", "COMMIT"]),
        (lambda: admin.identify("uid"), [[("u",)]], OURS, ["ask"]),
        (lambda: settling(Succeeded()), [NOW, [(41,)]], OURS, ["ask", "ask"]),
        (lambda: settling(Succeeded(b"1")), [NOW, [(41,)], []], OURS, ["ask", "BEGIN", "ask", "ask", "COMMIT"]),
        (lambda: settling(Succeeded()), [NOW, [], [], []], OURS, ["ask", "ask", "BEGIN", "ask", "ask", "COMMIT"]),
        (workers.workers, [[]], OURS, ["ask"]),
        (attempts.until_expiry, [[attempts.NextTimeout(T0, None, None)]], OURS, ["ask"]),
    ],
    ids=["enqueue", "with a tag", "of several", "with a key", "pooled", "no notify", "nothing",
         "a run", "a run, pooled", "a run that exists", "nothing due",
         "a claim", "a stranger", "a claim, pooled", "a question", "the identity", "a success", "a result",
         "a lost lease", "workers", "the next wait"],
)  # fmt: skip
def test_an_operation_takes_few_round_trips(
    build: Any, answers: list[Any], settings: PostgresSettings, expected: list[str]
):
    """Free statements precede the transaction, and a single statement needs none."""
    assert expected == play_script(full_script(build(), settings, yes), *answers)[1]


def test_repeated_notifications_are_left_out():
    """Without a notification the statement is sent unchanged."""
    several, single = jobs.enqueue([new(), new()]), jobs.enqueue([new()])

    assert ["ask", "jobs payloads policies"] == play_script(full_script(several, OURS, bool), TWO, [])[1]
    assert ["jobs payloads policies"] == play_script(full_script(single, OURS, bool), PLACED)[1]


def test_a_sweep_without_a_result_notifies_no_worker():
    """Sweeps that find nothing create no work, so that idle workers do not wake each other."""
    sent = play_script(full_script(leases.sweep(9, now=T0), OURS, yes), [clock.Instant(T0)], [], [])[1]

    assert ("ask", "BEGIN", "COMMIT") == (*sent[:2], sent[-1])


def test_an_operation_in_a_users_transaction_neither_begins_nor_ends_one():
    """On a user's connection, and on one that is lent, an operation is a part of what happens there."""
    script = inner_script(jobs.enqueue([new(), new()]).steps, OURS)

    assert (jobs.EnqueueResult([1, 2], at=T0), ["ask", "jobs payloads policies"]) == play_script(script, TWO, [])


@writes
def _forgiving() -> Statements[str]:
    try:
        yield Query("clock", {"now": None}, into=clock.Instant)
    except StoreBusy:
        yield Query("worker_trouble", {"id": 1, "trouble": "t"})
    return "fine"


def test_an_operation_may_handle_an_error():
    """Errors of the database are thrown into the operation, which may send another statement."""
    script = full_script(_forgiving(), OURS, bool)
    written_statements = [next(script), script.throw(StoreBusy("no")), script.send([]), script.send([])]

    assert ["ask", "BEGIN", "ask", "COMMIT"] == [short(each) for each in written_statements]
    with pytest.raises(StopIteration, match="fine"):
        script.send([])


def test_only_rows_that_are_all_that_is_written_are_a_transaction_of_their_own():
    """The row of a received signal and the mark of the signal are one transaction; the row of a step needs none."""
    plain = StepBatch(7, 41, (step(),))
    signal = StepBatch(7, 41, (replace(step(kind=StepKind.WAIT), ref=3),))

    def sent(batch: StepBatch, *answers: Sequence[Any]) -> list[str]:
        return play_script(full_script(steps.record([batch]), OURS, bool), *answers)[1]

    row = steps._Written(7, "1", 41, T0, None, False)
    assert ["ask"] == sent(plain, [row])
    assert ["ask", "BEGIN", "ask", "ask", "COMMIT"] == sent(signal, NOW, [row], [])


def test_an_unhandled_error_ends_the_operation():
    """No more statements follow an error that the operation does not handle."""
    script = full_script(jobs.enqueue([new()]), OURS, bool)
    next(script)
    with pytest.raises(StoreError, match="no"):
        script.throw(StoreError("no"))


def test_several_statements_are_combined():
    """Each is a part of one statement, and their parameters are counted on."""
    query = Compound((Query("keys_drop", {"job_ids": [7]}), Query("worker_trouble", {"id": 8, "trouble": "t"})))
    text, values = composed(query, "s", "news")

    assert [[7], "t", 8] == values
    assert (
        "WITH part_1 AS (DELETE FROM \"s\".redrive_keys WHERE kind <> 'idempotency' AND job_id = ANY ($1::bigint[])), "
        'part_2 AS (UPDATE "s".redrive_workers SET trouble = $2::text '
        "WHERE id = $3::bigint AND stopped_at IS NULL) SELECT pg_notify('news', '')"
    ) == " ".join(text.split())


def test_the_last_of_several_statements_returns_the_rows():
    """Without a notification the rows are those of the query itself."""
    query = Compound((Query("keys_drop", {"job_ids": [7]}), Query("worker_trouble", {"id": 8, "trouble": "t"})))

    assert ") UPDATE " in composed(query, "s")[0]


@writes
def two_lasts() -> Statements[None]:
    """Declare the first of two queries the last."""
    yield Query("payload_insert", many=[])
    yield Query("payload_insert", many=[])


@pytest.mark.parametrize(("name", "begin"), [("claim_chosen", "WITH"), ("claim", "WITH RECURSIVE")])
def test_a_statement_keeps_its_with_clauses(name: str, begin: str):
    """Others that run together with it go before its own."""
    params = {
        "ids": [1],
        "queues": None,
        "excluded": None,
        "tasks": None,
        "worker_id": 2,
        "now": T0,
        "count": 1,
        **leases.parameters(()),
    }
    params["salt"] = 3
    text, values = composed(Compound((Query("keys_drop", {"job_ids": [7]}), Query(name, params))), "s")

    assert [7] == values[0]
    assert 1 == text.count(f"{begin} part_1 AS (DELETE ")
    assert 1 == text.count("ANY ($1::bigint[])), ")


def test_no_query_may_follow_the_last():
    """Queries after the last one raise, because the transaction is committed already."""
    with pytest.raises(RuntimeError, match="payload_insert.* follows a query that was declared the last"):
        play_script(full_script(two_lasts(), OURS, bool), [], [])
