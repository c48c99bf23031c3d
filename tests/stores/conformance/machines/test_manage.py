"""Instances as operators read and change them."""

from __future__ import annotations

import pytest

from redrive.engine.machine import FAILED, DataChange, InstanceStatus
from redrive.engine.outcome import Succeeded
from redrive.errors import IllegalMove, InstanceNotFound, MachineBusy
from redrive.stores.operations import checks, doctor
from redrive.stores.operations.audit import audit
from redrive.stores.operations.machines import manage
from redrive.stores.operations.machines.rows import Known
from tests.stores.helpers import Harness, seconds
from tests.stores.machines import DAY, Automaton, data, leave, payment, statuses


def test_what_waits_for_other_code_is_counted(payments: Automaton):
    """Instances in unknown states, timeouts and waiting events of unknown classes are counted; so are failures."""
    payments.walk("Created", "Paid", key="old")
    payments.walk("Created", "Paid", key="timeout")
    payments.walk("Created", key="event")
    payments.queue("Paid", key="event")
    payments.send("Completed", key="old")
    payments.fail()
    known = payments.known
    none = payments.store.do(manage.stranded(known))
    other = Known(known.machines, known.states[:1], ("payment/Created",))
    without = Known(known.machines, known.states, ("payment/Created", "payment/Paid"))
    vitals = payments.store.do(doctor.examine(payments.store.now, machines=other))

    assert () == none
    assert [("event", None, FAILED, 1), ("event", None, "Paid", 1), ("state", "paid", None, 2)] == [
        (each.what, each.state, each.event, each.number) for each in vitals.stranded
    ]
    assert [("payment", 1, "old")] == [(each.machine, each.number, each.key) for each in vitals.failed]
    assert [("event", None, FAILED, 1), ("timeout", "paid", "Expired", 2)] == [
        (each.what, each.state, each.event, each.number) for each in payments.store.do(manage.stranded(without))
    ]


def test_a_skipped_transition_leaves_the_instance_free(payments: Automaton):
    """Skipping drops the event of a failed transition; its job counts as caught."""
    payments.walk("Created")
    payments.send("Paid")
    claim = payments.fail()
    payments.skip()

    found = payments.get()
    assert ("created", None, InstanceStatus.RUNNING, None) == (found.state, found.to_state, found.status, found.error)
    assert ["moved", "skipped"] == statuses(payments.history())
    assert payments.store.job(claim.id).caught_at is not None
    assert "paid" == payments.send("Paid").to_state


def test_only_a_failed_transition_is_skipped(payments: Automaton):
    """Skipping is refused for an instance without a failed transition, and for none."""
    payments.send("Created")

    with pytest.raises(IllegalMove, match="'a' is running; only a failed transition can be skipped"):
        payments.skip()
    with pytest.raises(InstanceNotFound):
        payments.skip("none")


def test_an_instance_is_reset_to_a_state(payments: Automaton):
    """Resetting puts an instance into a state with its timeout and its data, and drops a failed transition."""
    payments.send("Created")
    payments.run(DataChange(data(1)))
    payments.send("Paid")
    payments.fail()
    payments.store.wait(5)
    payments.reset("paid")

    found = payments.get()
    assert ("paid", InstanceStatus.RUNNING, b"1", 2) == (found.state, found.status, found.data, found.moves)
    assert (payments.store.now, payments.store.now + 3 * DAY) == (found.entered_at, found.timeout_at)
    assert [("created", "paid", "Paid", "skipped"), ("created", "paid", None, "moved")] == payments.moves_of()[1:]
    assert ("reset", "ann") == (payments.history()[-1].source, payments.history()[-1].actor)
    assert InstanceStatus.COMPLETED is payments.reset("completed").status


def test_a_reset_drops_the_event_of_a_failure(payments: Automaton):
    """Resetting an instance that is about to move to the state of `failed_to` keeps it where it was put."""
    payments.walk("Created", "Paid")
    payments.send("Completed")
    payments.queue("Expired")
    payments.fail()
    payments.reset("created")

    assert [("Expired", "refused")] == [(turn.event, str(turn.status)) for turn in payments.turns()]
    assert ("created", ["skipped", "skipped"]) == (
        payments.get().state,
        [str(move.status) for move in payments.history() if move.event in {FAILED, "Completed"}],
    )


def test_a_running_transition_is_not_taken_away(payments: Automaton):
    """Instances with a transition that runs are neither reset nor deleted."""
    sent = payments.send("Created")

    for act in (lambda: payments.reset("paid"), payments.delete):
        with pytest.raises(MachineBusy) as refused:
            act()
        assert sent.id == refused.value.job_id
    assert "created" == payments.get().to_state


def test_a_deleted_instance_begins_anew(payments: Automaton):
    """Deleting removes an instance with its history; its next event creates it again."""
    payments.walk("Created")
    payments.send("Paid")
    payments.fail()
    payments.delete()

    assert [] == payments.history()
    assert "created" == payments.send("Created").to_state


def test_actions_are_audited(payments: Automaton):
    """Skip, reset, delete and migrate write a line of the audit log with the actor."""
    payments.send("Created")
    payments.fail()
    payments.skip()
    payments.reset("created")
    payments.migrate("created", "paid")
    payments.delete()

    entries = payments.store.do(audit())
    assert [("ann", action) for action in ("delete", "migrate", "reset", "skip")] == [
        (each.actor, each.action) for each in entries
    ]
    assert '{"machine":"payment","old":"created","new":"paid","count":1}' == entries[1].details


def test_free_instances_migrate_in_batches(payments: Automaton):
    """Migrations move the free instances of a state, by their keys; those with a transition stay."""
    for key in "abcdef":
        payments.walk("Created", key=key)
    payments.send("Paid", "c")
    payments.send("Paid", "d")
    payments.fail()
    payments.store.wait(7)
    first = payments.migrate("created", "paid", limit=3)
    rest = payments.migrate("created", "paid", limit=3, after=first.last or "")

    assert (("a", "b", "e"), "e", ("f",), None) == (first.keys, first.last, rest.keys, rest.last)
    moved = payments.get("a")
    assert ("paid", payments.store.now, payments.store.now + 3 * DAY) == (
        moved.state,
        moved.entered_at,
        moved.timeout_at,
    )
    assert ("migrate", "created", "paid", "ann") == (
        payments.history()[-1].source,
        payments.history()[-1].from_state,
        payments.history()[-1].to_state,
        payments.history()[-1].actor,
    )
    assert manage.Migrated((), None) == payments.migrate("nowhere", "paid")


def test_timeouts_are_computed_again_on_request(store: Harness):
    """Rearming computes the timeouts of a state again, from the instants of the moves."""
    payments = Automaton(store)
    payments.walk("Created", "Paid")
    began = store.now
    store.wait(60)
    for days in (5, None):
        timeout = None if days is None else type(payment().states["paid"].timeout)(days * DAY, "Expired", b"{}")  # type: ignore[misc]
        payments.definition = payment(timeout=timeout)
        how = payments.entered("paid")
        assert ("a",) == store.do(manage.rearm("payment", "paid", how)).keys
        assert (None if days is None else began + days * DAY) == payments.get().timeout_at
    assert manage.Migrated((), None) == store.do(manage.rearm("payment", "none", how))
    assert manage.Migrated(("a",), "a") == store.do(manage.rearm("payment", "paid", how, limit=1))


def test_instances_are_listed_by_key(payments: Automaton):
    """Lists contain one page of the instances of a machine, by state and status."""
    for key in "abc":
        payments.walk("Created", key=key)
    payments.send("Paid", "b")
    payments.fail()
    payments.walk("Paid", key="c")

    def keys(**wanted: object) -> list[str]:
        return [each.key for each in payments.store.do(manage.select("payment", **wanted))]  # type: ignore[arg-type]

    assert (["a", "b", "c"], ["b", "c"], ["a"]) == (keys(), keys(after="a"), keys(limit=1))
    assert (["a", "b"], ["b"], []) == (keys(state="created"), keys(status=InstanceStatus.FAILED), keys(state="none"))
    assert () == payments.store.do(manage.select("other"))


def test_instances_are_counted_by_state(payments: Automaton):
    """Counts have the number of instances, of busy ones, and the earliest entry, by state and status."""
    began = payments.store.now
    payments.walk("Created", key="a")
    payments.store.wait(3)
    payments.walk("Created", key="b")
    payments.walk("Paid", key="b")
    payments.send("Completed", "b")
    counts = payments.store.do(manage.counts())

    assert [
        manage.InstanceCount("payment", "created", InstanceStatus.RUNNING, 1, 0, began),
        manage.InstanceCount("payment", "paid", InstanceStatus.RUNNING, 1, 1, payments.store.now),
    ] == list(counts)
    assert (counts, ()) == (payments.store.do(manage.counts("payment")), payments.store.do(manage.counts("other")))


def test_the_longest_waiting_instances_come_first(payments: Automaton):
    """Lists of instances that have been in a state since an instant begin with the earliest."""
    began = payments.store.now
    for key in "ba":
        payments.walk("Created", key=key)
        payments.store.wait(10)
    payments.walk("Created", "Paid", "Completed", key="done")

    def keys(until: float, **options: int) -> list[str]:
        wanted = [("created", began + seconds(until)), ("completed", began + seconds(until))]
        return [each.key for each in payments.store.do(manage.since("payment", wanted, **options))]

    assert ([], ["b"], ["b", "a"], ["b"]) == (keys(-1), keys(0), keys(20), keys(20, limit=1))


def test_the_history_is_read_in_pages(payments: Automaton):
    """Histories are read from the latest event backwards."""
    payments.walk("Created", "Paid", "Completed")
    newest, *_ = payments.store.do(manage.history("payment", "a", limit=1))
    rest = payments.store.do(manage.history("payment", "a", before=newest.id))

    assert ("Completed", ["Paid", "Created"]) == (newest.event, [each.event for each in rest])


def test_the_data_of_an_instance_are_read_alone(payments: Automaton):
    """Data are read by the key; a missing instance has none."""
    payments.send("Created")
    payments.run(DataChange(data([1])))

    assert (b"[1]", None) == tuple(payments.store.do(manage.data("payment", key)) for key in ("a", "none"))


def test_healthy_instances_cause_no_finding(payments: Automaton):
    """Instances that are free, run, retry, are being caught, or have failed cause no finding."""
    payments.walk("Created", key="free")
    payments.send("Created", "runs")
    payments.store.claim()
    payments.send("Created", "fails")
    payments.fail()
    payments.send("Created", "cancelled")
    payments.store.cancel(payments.get("cancelled").job_id or 0)
    payments.retry = "0 1s catch mend"
    payments.send("Created", "caught")
    payments.fail()
    payments.queue("Paid", "runs")

    assert () == payments.store.do(checks.check()).findings


def test_a_lost_transition_is_found(payments: Automaton):
    """Instances that wait for an ended, missing or foreign job, and events that they have left behind, are found."""
    ids = [payments.send("Created", key).id for key in "abcd"]
    claims = {claim.id: claim for claim in payments.store.claim(4)}
    payments.store.do(leave(payments.get("d")))
    payments.store.do(leave(payments.get("c"), job_id=ids[0]))
    payments.store.settle((claims[ids[3]], Succeeded()))
    payments.store.do(leave(payments.get("d"), job_id=ids[3]))
    payments.store.do(leave(payments.get("b"), job_id=4711))

    texts = {each.text for each in payments.store.do(checks.check()).findings if each.rule == "machines"}
    assert {
        "payment/b waits for job 4711, which is not there",
        f"payment/c waits for job {ids[0]}, which is for machine:payment/a",
        f"payment/d waits for job {ids[3]}, which is succeeded",
        f"payment/b has left the event {ids[1]}, whose transition runs",
        f"payment/c has left the event {ids[2]}, whose transition runs",
    } == texts


def test_completed_instances_are_deleted_after_their_time(payments: Automaton):
    """Completed instances go with their histories, in batches; running and failed ones, and new events, stay."""
    for key in "abc":
        payments.walk("Created", "Paid", "Completed", key=key)
        payments.store.wait(1)
    payments.walk("Created", key="running")
    payments.walk("Created", "Paid", key="failed")
    payments.retry = "0"
    payments.send("Completed", key="failed")
    payments.fail()
    payments.queue("Paid", key="c")
    payments.store.wait(86_400 - 3)

    def prune(limit: int) -> manage.Pruned:
        return payments.store.do(manage.prune_completed("payment", DAY, limit=limit, now=payments.store.now))

    assert manage.Pruned(1, more=True) == prune(1)
    assert manage.Pruned(0, more=False) == prune(1)
    payments.store.wait(60)
    assert manage.Pruned(1, more=True) == prune(2)
    assert manage.Pruned(0, more=False) == prune(2)
    left = payments.store.do(manage.select("payment"))
    assert ["c", "failed", "running"] == [each.key for each in left]
    assert ([], 3) == (payments.history("a"), len(payments.history("c")) - 1)
    assert () == payments.store.do(checks.check()).findings


def test_instances_are_counted_by_state_up_to_a_limit(payments: Automaton, monkeypatch: pytest.MonkeyPatch):
    """Each state has its number, its failed instances, and since when the first is there; new ones have no state."""
    began = payments.store.now
    for key in "abc":
        payments.walk("Created", key=key)
    payments.store.wait(5)
    payments.send("Paid", key="a")
    payments.fail()
    payments.walk("Paid", key="b")
    payments.send("Created", key="new")
    found = payments.store.do(manage.by_state("payment"))

    assert [(None, 1, 0), ("created", 2, 1), ("paid", 1, 0)] == [(row.state, row.number, row.failed) for row in found]
    assert [payments.store.now, began, payments.store.now] == [row.since for row in found]
    assert found == payments.store.do(manage.by_state())
    assert () == payments.store.do(manage.by_state("other"))
    monkeypatch.setattr(manage, "EXACT", 0)
    assert {1} == {row.number for row in payments.store.do(manage.by_state())}


def test_a_limited_count_of_failed_instances_says_so(payments: Automaton, monkeypatch: pytest.MonkeyPatch):
    """If the failed instances of a machine reach the limit, each state may have more, also where none was read."""
    payments.walk("Created", key="a")
    payments.send("Paid", key="a")
    payments.fail()
    payments.walk("Created", key="b")
    payments.walk("Paid", key="b")

    def failed() -> dict[str | None, str]:
        return {row.state: str(row.failed_count) for row in payments.store.do(manage.by_state("payment"))}

    assert {"created": "1", "paid": "0"} == failed()
    monkeypatch.setattr(manage, "EXACT", 0)
    assert {"created": "0+", "paid": "0+"} == failed()


def test_instances_are_searched_with_a_budget(payments: Automaton):
    """Searches read so many instances and go on behind them; failed ones are found at once."""
    for key in "abcd":
        payments.walk("Created", key=key)
    payments.walk("Paid", key="d")
    payments.send("Paid", key="c")
    payments.fail()

    def search(**given: object) -> tuple[str, str | None]:
        """Return the keys that were found, and where to go on."""
        found = payments.store.do(manage.search("payment", **given))
        return "".join(each.key for each in found.instances), found.searched_to

    assert ("", "c") == search(state="paid", budget=3)
    assert ("d", None) == search(state="paid", budget=3, after="c")
    assert ("ab", None) == search(limit=2)
    assert ("abd", None) == search(status=InstanceStatus.RUNNING)
    assert ("c", None) == search(status=InstanceStatus.FAILED, budget=1)
    assert ("", None) == search(status=InstanceStatus.FAILED, state="paid")
