"""Fixtures of the orchestrator: events are logged."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _all_events(caplog):
    """Everything that the orchestrator tells is there to be looked at."""
    caplog.set_level(logging.DEBUG, logger="redrive.orchestrator")
