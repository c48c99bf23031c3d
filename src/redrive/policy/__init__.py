"""Policies: what becomes of a failed call.

Answers: may it be repeated, and when? A `Policy` is a value; `Policy.decide` is the one place where a retry is decided,
in process and durably. May import: `redrive.errors`, and of the standard library only what is loaded anyway. Must
never: read a clock, roll dice, do I/O, or import asyncio, logging, msgspec or dataclasses (a plain decorated function
pays for all that is imported here).
"""

from redrive.policy import algebra as _algebra  # noqa: F401 - gives policies and schedules their operators
from redrive.policy.backoff import Backoff
from redrive.policy.classify import reading
from redrive.policy.decision import Decision, Defer, GiveUp, History, Retry
from redrive.policy.duration import format_duration, parse_duration
from redrive.policy.failure import Failure, Stage
from redrive.policy.jitter import Jitter
from redrive.policy.policy import Policy
from redrive.policy.reason import Reason
from redrive.policy.rule import Rule

__all__ = [
    "Backoff",
    "Decision",
    "Defer",
    "Failure",
    "GiveUp",
    "History",
    "Jitter",
    "Policy",
    "Reason",
    "Retry",
    "Rule",
    "Stage",
    "format_duration",
    "parse_duration",
    "reading",
]
