"""Fixtures of the orchestrator: events are logged."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _all_events(caplog):
    """Collect all events of the orchestrator."""
    caplog.set_level(logging.DEBUG, logger="redrive.orchestrator")
