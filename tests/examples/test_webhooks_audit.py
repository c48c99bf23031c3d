"""The audit of the webhooks: the database and the files of receiver and catch task must agree."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from audit import Delivery, EventFate, EventVerdict, Result, audit, report, rows
from delivery import DeadLetter, read_dead_letters
from events import Event
from ledger import Entry
from plan import Act

from redrive.engine.lifecycle import State
from redrive.engine.records import JobRecord
from redrive.policy import Policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def case(state=State.SUCCEEDED, *, attempt=1, number=1, caught=False, **more) -> Delivery:
    """Return a delivery as the database reports it, under the key `k<number>`."""
    job = JobRecord(
        id=number,
        task="deliver",
        queue="default",
        priority=0,
        state=state,
        hold=None,
        note=None,
        enqueued_at=NOW,
        scheduled_at=NOW,
        started_at=NOW,
        claimed_at=NOW,
        finished_at=NOW,
        caught_at=NOW if caught else None,
        skipped_at=None,
        attempt=attempt,
        failures=attempt - 1,
        crashes=0,
        snoozes=0,
        redrives=0,
        lease_id=None,
        worker_id=None,
        parent_id=None,
        partition=None,
        key=None,
        key_until=None,
        origin=None,
        reason=None,
        error=None,
        policy=Policy(attempts=1),
    )
    return Delivery(job, f"k{number}", **more)


def request(status, *, key="k1", number=1, accepted=False, duplicate=False) -> Entry:
    """Return a request as the receiver records it."""
    return Entry(NOW, 1, "evt", key, number, Act.ACCEPT, status, accepted, duplicate, 0, "")


def letter(key) -> DeadLetter:
    """Return a line of the dead-letter file."""
    return DeadLetter(key, 1, 7, "refused", Event("evt", "t", NOW, {}))


def fate(*, delivery: Delivery, ledger=(), letters=()) -> EventFate:
    """Return the verdict on one event."""
    ((verdict,), _) = audit((delivery,), tuple(ledger), tuple(map(letter, letters)))
    return verdict.fate


def numbers(cases, ledger) -> dict[str, int]:
    """Return the numbers of the table by their rows."""
    return {name.strip(): number for name, number, _ in rows(Result(*audit(cases, ledger, ())))}


def test_delivered_needs_the_database_and_the_receiver():
    """Jobs that succeeded are delivered if the receiver answered 2xx under their key."""
    assert EventFate.DELIVERED is fate(delivery=case(), ledger=[request(200)])


@pytest.mark.parametrize(
    "ledger",
    [[], [request(500)], [request(None)], [request(410)], [request(302)], [request(200, key="k2")]],
    ids=["nothing", "500", "reset", "410", "302", "another key"],
)
def test_a_success_that_the_receiver_does_not_confirm_is_lost(ledger):
    """Without a 2xx under exactly its key a succeeded job is lost, whatever the database reports."""
    assert EventFate.LOST is fate(delivery=case(), ledger=ledger)


def test_caught_needs_the_dead_letter():
    """Dead jobs are caught if their catch task succeeded and their dead letter is in the file."""
    delivery = case(State.DEAD, caught=True, letters=frozenset({"k9"}))
    assert EventFate.CAUGHT is fate(delivery=delivery, ledger=[request(500)], letters=["k9"])


@pytest.mark.parametrize("letters", [[], ["k8"]], ids=["nothing", "another key"])
def test_a_catch_that_the_dead_letter_file_does_not_confirm_is_lost(letters):
    """Without its dead letter a caught job is lost, whatever the database reports."""
    delivery = case(State.DEAD, caught=True, letters=frozenset({"k9"}))
    assert EventFate.LOST is fate(delivery=delivery, ledger=[request(500)], letters=letters)


def test_a_catch_after_a_410_is_counted_as_gone():
    """Distinguish a caught job with the answer 410 from one that ran out of retries."""
    delivery = case(State.DEAD, caught=True, letters=frozenset({"k9"}))
    assert EventFate.GONE is fate(delivery=delivery, ledger=[request(410)], letters=["k9"])


@pytest.mark.parametrize("state", [State.READY, State.RUNNING])
def test_a_job_that_can_still_run_is_unfinished(state):
    """Queued and running jobs are neither delivered nor lost, even if the receiver has answered 2xx."""
    assert EventFate.UNFINISHED is fate(delivery=case(state), ledger=[request(200)])


def test_a_dead_job_is_unfinished_while_its_catch_task_is_to_come():
    """Between death and catch no job counts as lost."""
    assert EventFate.UNFINISHED is fate(delivery=case(State.DEAD, catching=True))


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
def test_a_job_that_ended_without_delivery_or_catch_is_lost(state):
    """Jobs that are dead without a catch, or cancelled, are lost."""
    assert EventFate.LOST is fate(delivery=case(state), ledger=[request(500)])


def test_only_jobs_with_more_than_one_attempt_count_as_retried():
    """Delivered after retries means: delivered, and not by the first attempt."""
    cases = (case(), case(number=2, attempt=3), case(State.DEAD, number=3, attempt=7))
    table = numbers(cases, (request(200), request(200, key="k2")))
    assert (2, 1, 1) == (table["delivered"], table["after retries"], table["lost"])


def test_repeats_are_no_duplicates():
    """Every request after the first under a key is a repeat; it is a duplicate if the event had been taken before."""
    ledger = (
        request(500),
        request(None, number=2, accepted=True),
        request(200, number=3, duplicate=True),
        request(200, key="of another run", number=2, duplicate=True),
    )
    table = numbers((case(),), ledger)
    assert (3, 2, 1) == tuple(
        table[each] for each in ("requests to the receiver", "repeats under the same key", "of accepted events")
    )
    assert "accepted twice" not in table


def test_an_event_that_the_receiver_accepts_twice_is_a_duplicate():
    """Two acceptances under one key are a defect, whatever the database reports."""
    table = numbers((case(),), (request(200, accepted=True), request(200, number=2, accepted=True)))
    assert 1 == table["accepted twice"]


def test_a_missing_file_has_no_lines(tmp_path):
    """No dead-letter file means no dead letters."""
    assert [] == read_dead_letters(tmp_path / "missing")


def test_half_a_line_of_the_dead_letters_is_read_later(tmp_path):
    """Read complete lines only."""
    path = tmp_path / "letters"
    path.write_bytes(msgspec.json.encode(letter("k9")) + b'\n{"key":"k1')
    assert [letter("k9")] == read_dead_letters(path)


def test_a_broken_line_of_the_dead_letters_is_an_error(tmp_path):
    """Raise an error for an unreadable file instead of treating it as empty."""
    path = tmp_path / "letters"
    path.write_text("hello\n")
    with pytest.raises(msgspec.DecodeError):
        read_dead_letters(path)


# ------------------------------------------------------------------------------------------------------------ report

FINDINGS = (
    EventVerdict(1, EventFate.DELIVERED, 1),
    EventVerdict(2, EventFate.DELIVERED, 3),
    EventVerdict(3, EventFate.CAUGHT, 7),
    EventVerdict(4, EventFate.GONE, 1),
)
REQUESTS = (
    request(None, key="k2", accepted=True),
    request(200, key="k2", number=2, duplicate=True),
)


def sentence(run: Result) -> str:
    """Return the last line of a report."""
    return list(report(run))[-1]


def test_the_summary_contains_all_counts():
    """Events in, delivered, after retries, caught, lost, repeats."""
    expected = (
        "4 events in: 2 delivered, 1 of them after retries, 2 caught, 0 lost; "
        "the receiver recognised 1 repeats by their idempotency key."
    )
    assert expected == sentence(Result(FINDINGS, REQUESTS))


def test_queued_jobs_are_in_the_summary():
    """After an interruption the sentence gives the number of queued jobs."""
    assert "0 lost, 1 still queued;" in sentence(Result((EventVerdict(1, EventFate.UNFINISHED, 0),)))


def test_the_table_adds_up():
    """Delivered, caught and lost are the events; their parts are they."""
    table = {name.strip(): number for name, number, _ in rows(Result(FINDINGS, REQUESTS))}
    assert table["events in"] == table["delivered"] + table["caught"] + table["lost"]
    assert table["delivered"] == table["at the first attempt"] + table["after retries"]
    assert table["caught"] == table["gone (410), no retry"] + table["retries exhausted"]


def test_the_table_fits_into_eighty_columns():
    """Its longest texts need no more than 80 columns."""
    findings = (*FINDINGS, EventVerdict(5, EventFate.UNFINISHED, 1))
    run = Result(findings, REQUESTS, killed="worker 12", held=frozenset({1}))
    assert max(map(len, list(report(run))[:-1])) <= 80


def test_lost_events_are_named():
    """Report a loss with the job and the missing record."""
    run = Result((EventVerdict(7, EventFate.LOST, 1, "the receiver never answered 2xx under its key"),))
    assert "lost: job 7: the receiver never answered 2xx under its key" in list(report(run))


def test_a_report_is_plain_text():
    """Print neither frames nor escape codes, and the table before the sentence."""
    *table, last = report(Result(FINDINGS, REQUESTS))
    assert all(line.isascii() and line.isprintable() for line in (*table, last))
    assert "caught                             2  database; dead-letter file" in table
    assert last.startswith("4 events in: ")


@pytest.mark.parametrize(
    ("jobs", "expected"), [({1, 2}, "all ran again elsewhere"), ({1, 5}, "1 ran again elsewhere")], ids=["all", "some"]
)
def test_the_jobs_of_killed_workers_are_tracked(jobs, expected):
    """Count the deliveries that the killed worker held, and those of them that other workers finished."""
    findings = (*FINDINGS, EventVerdict(5, EventFate.LOST, 1, "gone"))
    run = Result(findings, killed="worker 1", held=frozenset(jobs))
    assert ("held by worker 1 when killed", 2, expected) == rows(run)[-1]
