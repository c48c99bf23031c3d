"""Errors of workflows carry the facts that a program needs."""

from __future__ import annotations

from redrive.errors import ChildFailed, StepFailed


def test_a_failed_step_names_the_class_of_its_error():
    """Steps with errors of unknown classes have the name of the class and the reason."""
    error = StepFailed("step charge failed", error_type="bank.Refused", reason="REFUSED")

    assert ("step charge failed", "bank.Refused", "REFUSED") == (str(error), error.error_type, error.reason)


def test_a_failed_child_names_its_job():
    """Children that have failed have the job and the reason."""
    error = ChildFailed("the child failed", job_id=7, reason="CANCELLED")

    assert ("the child failed", 7, "CANCELLED") == (str(error), error.job_id, error.reason)
