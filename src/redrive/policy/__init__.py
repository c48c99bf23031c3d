"""Policies: decide whether and when a failed call is repeated.

A `Policy` is a value. `Policy.decide` makes every retry decision, in process and for durable jobs.

May import: `redrive.errors`, and of the standard library only modules that Python loads anyway. Must never: read a
clock or a random number generator, do I/O, or import asyncio, logging, msgspec or dataclasses.
"""

from redrive.policy.backoff import Backoff
from redrive.policy.classify import reading
from redrive.policy.decision import Decision, Defer, GiveUp, History, Retry
from redrive.policy.duration import format_duration, parse_duration
from redrive.policy.failure import Failure, Lasting
from redrive.policy.fields import Rule
from redrive.policy.jitter import Jitter
from redrive.policy.policy import Policy
from redrive.policy.reason import Reason
from redrive.policy.stage import Stage

__all__ = [
    "Backoff",
    "Decision",
    "Defer",
    "Failure",
    "GiveUp",
    "History",
    "Jitter",
    "Lasting",
    "Policy",
    "Reason",
    "Retry",
    "Rule",
    "Stage",
    "format_duration",
    "parse_duration",
    "reading",
]
