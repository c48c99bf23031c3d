"""The colours, synchronous or asynchronous, in which the conformance tests use each store, and a check of coverage.

Both colours of a store run the same operations and the same SQL, so a test uses each store in one of them. The tests
of a module alternate. The two stores of SQLite share a driver and always get different colours. Turso's asynchronous
colour is SQLite's code and does not run. PostgreSQL's colours are two libraries: after a run of the whole suite, each
operation must have run in both of them. `BOTH` lists the tests that run some operation as the only ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

COLOURS = ("sync", "async")

BOTH = {
    "test_a_reshard_begins_where_all_shards_have_ended",
    "test_old_events_are_deleted_when_all_have_read_them",
    "test_a_repeated_turn_writes_nothing_twice",
    "test_lines_are_free_when_their_jobs_have_ended",
    "test_a_restored_database_is_refused_until_it_is_rebased",
    "test_a_deleted_subscription_leaves_its_jobs",
    "test_a_look_finds_new_events",
    "test_a_skipped_event_is_dead_with_its_last_error",
    "test_a_pause_is_taken_back",
    "test_events_done_in_transactions_are_remembered_until_the_position_has_passed_them",
    "test_a_move_cancels_pending_deliveries",
    "test_a_claim_holds_all_that_its_attempt_needs",
    "test_a_database_has_its_own_name",
    "test_a_dead_job_is_skipped_once",
    "test_an_archive_entry_has_all_that_is_stored",
    "test_a_store_can_be_emptied",
    "test_an_empty_page_deletes_nothing",
    "test_a_check_returns_the_lost_leases",
    "test_busy_workers_are_counted",
    "test_a_queue_begins_without_settings",
    "test_an_attempt_can_ask_whether_it_is_current",
    "test_code_declares_until_an_operator_has_changed_the_queue",
    "test_the_ends_of_several_jobs_are_read_at_once",
    "test_the_time_until_the_next_wait_ends",
    "test_many_are_cancelled_at_once",
    "test_a_held_job_is_released_by_repolicy",
    "test_tags_are_stored_with_jobs",
    "test_working_sessions_are_not_stuck",
    "test_emitted_values_expire",
    "test_a_held_run_waits_for_other_code",
    "test_news_of_running_runs",
    "test_old_occurrences_are_forgotten",
    "test_items_are_counted",
    "test_an_untracked_item_is_deleted",
    "test_workers_that_left_long_ago_are_forgotten",
    "test_the_data_of_an_instance_are_read_alone",
    "test_a_lease_can_be_extended",
    "test_timeouts_are_computed_again_on_request",
    "test_a_child_and_the_row_of_its_call_are_written_together",
    "test_waiting_retries_are_listed_by_their_time",
    "test_the_longest_waiting_instances_come_first",
}
"""Tests that use PostgreSQL in both colours."""

RAN: set[tuple[str, str]] = set()
"""Colour and name of each operation that this process has run on PostgreSQL."""

_SUITE = ("tests", "tests/stores", "tests/stores/conformance")

_KEY = "redrive_operations"


def cases(test: Callable[..., None], kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Return the kinds of stores that a test uses, each with a colour."""
    tests = [name for name in test.__globals__ if name.startswith("test_")]
    place = tests.index(test.__name__)
    turns = {"memory": place, "file": place + 1, "postgres": place}
    chosen = [(kind, COLOURS[turns.get(kind, 0) % 2]) for kind in kinds]
    if test.__name__ in BOTH:
        chosen.append(("postgres", COLOURS[(place + 1) % 2]))
    return chosen


class Complete:
    """A pytest plugin that fails a run of the whole suite if an operation has not run in both colours."""

    def __init__(self, config: pytest.Config) -> None:
        chosen = config.option.keyword or config.option.markexpr or config.option.collectonly
        self._whole = not chosen and any(arg.rstrip("/") in _SUITE for arg in config.args)

    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a process of pytest-xdist has run."""
        RAN.update(getattr(node, "workeroutput", {}).get(_KEY, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what this process has run, or check what all have run."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = sorted(RAN)
        elif self._whole and (missing := self._missing()):
            lines = [
                f"{name} has not run {colour}: list a test of it in tests.stores.colours.BOTH"
                for name, colour in missing
            ]
            # A failed report is counted in the closing line; an exit code alone would contradict it.
            report = pytest.TestReport(
                "tests/stores/colours.py::operations",
                (__file__, 0, "operations"),
                {},
                "failed",
                "\n".join(lines),
                "call",
            )
            session.config.hook.pytest_runtest_logreport(report=report)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what is missing."""
        if self._whole:
            names = {name for _, name in RAN}
            terminalreporter.write_line(
                f"operations on PostgreSQL in both colours: {len(names) - len(self._missing())} of {len(names)}"
            )

    def _missing(self) -> list[tuple[str, str]]:
        return sorted((name, colour) for _, name in RAN for colour in COLOURS if (colour, name) not in RAN)
