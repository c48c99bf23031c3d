"""The stores and colours, synchronous or asynchronous, of the conformance tests, and a check of what has run on them.

Both colours of a store run the same operations and the same SQL, so a test uses each store in one of them, which its
name decides. The two stores of SQLite share a driver and always get different colours. Turso's asynchronous
colour is SQLite's code and does not run. PostgreSQL's colours are two libraries: after a run of the whole suite, each
operation must have run in both of them. `BOTH` lists the tests that run some operation as the only ones.

`make test` runs all of these tests in memory and on PostgreSQL, and fewer on the other two stores (`is_chosen`):
`TURSO` lists tests that run each operation there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

import pytest

COLOURS = ("sync", "async")

BOTH = {
    "test_all_under_a_value_is_found_and_erased",
    "test_the_latest_occurrences_of_each_cron_are_read_with_their_jobs",
    "test_groups_of_a_span_are_ordered_by_their_failures",
    "test_handlers_that_go_on_are_counted",
    "test_all_that_belongs_to_a_job_is_read_at_once",
    "test_builds_are_kept_with_their_first_start",
    "test_workers_with_a_build_are_read_after_they_have_left",
    "test_the_lag_of_a_subscription_is_noted_once_a_minute",
    "test_both_sides_of_a_change_are_added_up",
    "test_a_survey_knows_whether_jobs_behind_it_can_be_deleted",
    "test_an_equal_operation_is_not_started_twice",
    "test_a_group_is_muted_until_it_fails_again",
    "test_a_batch_that_failed_is_tried_again",
    "test_an_operation_is_stopped_once",
    "test_an_undo_stops_its_operation",
    "test_a_check_returns_the_lost_leases",
    "test_a_child_and_the_row_of_its_call_are_written_together",
    "test_a_claim_holds_all_that_its_attempt_needs",
    "test_a_claim_reads_the_first_unread_signals",
    "test_a_database_has_its_own_name",
    "test_a_held_run_waits_for_other_code",
    "test_a_lease_can_be_extended",
    "test_a_move_is_previewed",
    "test_a_page_reads_a_bounded_number_of_jobs",
    "test_a_queue_begins_without_settings",
    "test_a_request_with_a_key_is_stored_once",
    "test_a_reshard_begins_where_all_shards_have_ended",
    "test_a_session_is_found_until_it_ends",
    "test_a_store_can_be_emptied",
    "test_an_attempt_can_ask_whether_it_is_current",
    "test_an_empty_page_deletes_nothing",
    "test_the_unread_signals_of_a_run_are_named",
    "test_an_operator_supplies_the_value_of_a_step_that_waits",
    "test_busy_workers_are_counted",
    "test_completed_instances_are_deleted_after_their_time",
    "test_emitted_values_expire",
    "test_events_done_in_transactions_are_remembered_until_the_position_has_passed_them",
    "test_forgotten_requests_can_be_repeated",
    "test_instances_are_counted_by_state_up_to_a_limit",
    "test_items_are_counted",
    "test_lines_are_free_when_their_jobs_have_ended",
    "test_many_are_cancelled_at_once",
    "test_many_forks_start_one_after_the_other",
    "test_old_occurrences_are_forgotten",
    "test_old_counts_are_deleted",
    "test_old_sums_are_rolled_up",
    "test_texts_that_no_database_stores_are_refused",
    "test_the_data_of_an_instance_are_read_alone",
    "test_the_ends_of_several_jobs_are_read_at_once",
    "test_the_latest_occurrence_of_each_cron_is_read",
    "test_the_longest_waiting_instances_come_first",
    "test_the_next_due_time_is_read_without_a_claim",
    "test_each_of_many_jobs_has_its_own_payload",
    "test_the_material_of_a_job_without_payload",
    "test_the_time_until_the_next_wait_ends",
    "test_what_decides_on_due_jobs_is_read",
    "test_timeouts_are_computed_again_on_request",
    "test_waiting_retries_are_listed_by_their_time",
    "test_what_waits_for_other_code_is_counted",
    "test_a_worker_that_registers_again_gives_back_what_it_does_not_keep",
    "test_workers_that_left_long_ago_are_forgotten",
    "test_working_sessions_are_not_stuck",
}
"""Tests that use PostgreSQL in both colours."""

TURSO = {
    "test_the_unread_signals_of_a_run_are_named",
    "test_all_under_a_value_is_found_and_erased",
    "test_the_latest_occurrences_of_each_cron_are_read_with_their_jobs",
    "test_groups_of_a_span_are_ordered_by_their_failures",
    "test_handlers_that_go_on_are_counted",
    "test_all_that_belongs_to_a_job_is_read_at_once",
    "test_builds_are_kept_with_their_first_start",
    "test_workers_with_a_build_are_read_after_they_have_left",
    "test_the_lag_of_a_subscription_is_noted_once_a_minute",
    "test_both_sides_of_a_change_are_added_up",
    "test_a_survey_knows_whether_jobs_behind_it_can_be_deleted",
    "test_each_of_many_jobs_has_its_own_payload",
    "test_a_batch_that_failed_is_tried_again",
    "test_a_check_returns_the_lost_leases",
    "test_a_child_and_the_row_of_its_call_are_written_together",
    "test_a_claim_holds_all_that_its_attempt_needs",
    "test_a_claim_reads_the_first_unread_signals",
    "test_a_database_has_its_own_name",
    "test_a_database_in_a_file_needs_no_rebase",
    "test_a_deleted_cron_does_not_occur_again",
    "test_a_first_heartbeat_without_details_is_null",
    "test_a_heartbeat_extends_a_lease",
    "test_a_held_job_is_released_by_repolicy",
    "test_a_held_run_waits_for_other_code",
    "test_a_lease_can_be_extended",
    "test_a_limited_count_of_failed_instances_says_so",
    "test_a_lost_lease_is_not_given_back",
    "test_a_new_item_is_started_at_once",
    "test_a_policy_goes_a_day_after_it_was_seen_that_no_job_has_it",
    "test_a_refresh_without_items_is_not_found",
    "test_a_request_with_a_key_is_stored_once",
    "test_a_reshard_begins_where_all_shards_have_ended",
    "test_a_run_that_takes_its_steps_back_is_neither_forked_nor_given_a_value",
    "test_a_search_reads_a_limited_number_of_runs",
    "test_a_session_is_found_until_it_ends",
    "test_a_step_in_execution_is_busy_until_its_lease_ends",
    "test_a_superseded_transition_changes_nothing",
    "test_a_timeline_has_all_that_is_stored",
    "test_a_trace_is_kept_from_the_enqueue_on",
    "test_actions_are_audited",
    "test_an_answer_in_the_last_moment_counts",
    "test_an_attempt_can_ask_whether_it_is_current",
    "test_an_emptied_store_has_no_sums",
    "test_an_empty_page_deletes_nothing",
    "test_an_empty_store_has_no_latest_rows",
    "test_an_operation_is_stopped_once",
    "test_an_undo_is_made_once_and_leaves_deleted_jobs",
    "test_an_unknown_refresh_starts_nothing",
    "test_a_worker_that_registers_again_gives_back_what_it_does_not_keep",
    "test_backfilled_occurrences_are_not_fired_again",
    "test_circumstances_name_the_obstacles_of_a_job",
    "test_code_without_the_state_leaves_waiting_events",
    "test_completed_instances_are_deleted_after_their_time",
    "test_emitted_values_are_offered_in_the_end",
    "test_emitted_values_expire",
    "test_events_done_in_transactions_are_remembered_until_their_shard_has_them",
    "test_items_are_counted",
    "test_large_groups_are_read_in_parts",
    "test_lines_are_free_when_their_jobs_have_ended",
    "test_many_are_cancelled_at_once",
    "test_old_counts_are_deleted",
    "test_old_occurrences_are_forgotten",
    "test_old_sums_are_rolled_up",
    "test_omitted_settings_stay_and_none_removes_one",
    "test_only_groups_that_exist_are_muted",
    "test_paused_crons_and_refreshes_are_not_replanned",
    "test_redriven_jobs_do_not_expire",
    "test_tags_are_stored_with_jobs",
    "test_texts_that_no_database_stores_are_refused",
    "test_the_data_of_an_instance_are_read_alone",
    "test_the_ends_of_several_jobs_are_read_at_once",
    "test_the_longest_waiting_instances_come_first",
    "test_the_material_of_a_job_without_payload",
    "test_the_next_due_time_is_read_without_a_claim",
    "test_the_older_of_two_dead_jobs_with_one_key_is_redriven",
    "test_the_time_until_the_next_wait_ends",
    "test_timeouts_are_computed_again_on_request",
    "test_unknown_subscriptions_are_refused",
    "test_untracking_items_of_an_unknown_refresh_reports_none",
    "test_waiting_attempts_are_not_claimed_swept_or_given_back",
    "test_waiting_retries_are_listed_by_their_time",
    "test_what_decides_on_due_jobs_is_read",
    "test_what_waits_for_other_code_is_counted",
    "test_without_an_instant_the_clock_of_the_database_counts",
    "test_workers_that_left_long_ago_are_forgotten",
    "test_working_sessions_are_not_stuck",
}
"""Tests that `make test` runs on Turso; together they run each operation. `make test-all` runs all tests there."""

WAYS = ("sync on PostgreSQL", "async on PostgreSQL", "sync on Turso")
"""How each operation has to run."""

RAN: set[tuple[str, str]] = set()
"""Operations that this process has run in the conformance suite: the way, which may be another one, and the name."""

_SUITE = ("tests", "tests/stores", "tests/stores/conformance")

_KEY = "redrive_operations"


def cases(test: Callable[..., None], kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Return the kinds of stores that a test uses, each with a colour."""
    number = crc32(test.__name__.encode())
    turns = {"memory": number, "file": number + 1, "postgres": number}
    chosen = [(kind, COLOURS[turns.get(kind, 0) % 2]) for kind in kinds]
    if test.__name__ in BOTH:
        chosen.append(("postgres", COLOURS[(number + 1) % 2]))
    return chosen


def is_chosen(test: Callable[..., None], kind: str, *, shared: bool) -> bool:
    """Return whether `make test` runs a test on a kind of store."""
    if kind == "turso":
        return test.__name__ in TURSO
    # The code of files is that of the store in memory, except for what several connections do.
    races = shared or "at_once" in test.__code__.co_names
    return kind != "file" or races or crc32(test.__name__.encode()) % 4 == 0


class Complete:
    """A pytest plugin that fails a run of the whole suite if an operation has not run in each of the ways."""

    def __init__(self, config: pytest.Config) -> None:
        chosen = config.option.keyword or config.option.markexpr or config.option.collectonly
        self._whole = not chosen and any(arg.rstrip("/") in _SUITE for arg in config.args)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a process of pytest-xdist has run."""
        RAN.update(getattr(node, "workeroutput", {}).get(_KEY, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what this process has run, or check what all have run."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_KEY] = sorted(RAN)
        elif self._whole and (missing := self._missing()):
            lines = [f"{name} has not run {way}: list a test of it in tests.stores.colours" for name, way in missing]
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
            incomplete = {name for name, _ in self._missing()}
            names = self._names()
            terminalreporter.write_line(
                f"operations {', '.join(WAYS)}: {len(names - incomplete)} of {len(names)} in each way"
            )

    def _missing(self) -> list[tuple[str, str]]:
        return sorted((name, way) for name in self._names() for way in WAYS if (way, name) not in RAN)

    def _names(self) -> set[str]:
        return {name for way, name in RAN if way in WAYS}
