"""Schedules: recurrences, cron expressions, and refreshes with retries between planned times. PURE.

May import: `redrive.policy` and below, python-dateutil, cronsim. Must never: read a clock, or store anything. Time
zones come from the IANA database of the system or of the package tzdata.

`schedule` is the union of recurrence rules (`rule`, expanded by `calendar` and `elapsed`) and cron expressions (`cron`,
`ftl`) in one time zone (`timezone`). `policy` is the refresh policy, written in English by `english` and as JSON by
`codec`; `lint` warns about it, and `dry_run` simulates it. `refresh`, `starting` and `failing` have the transitions of
`state`.
"""

from redrive.schedule.cron import CronExpression
from redrive.schedule.options import Action, Exhausted, FunctionStrategy, GiveUpSince, Strategy, StrategyFunction
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.schedule import Schedule
from redrive.schedule.state import RefreshEffect, RefreshOutcome, RefreshState, RefreshTransition
from redrive.schedule.timezone import Gap

__all__ = [
    "Action",
    "CronExpression",
    "Exhausted",
    "FunctionStrategy",
    "Gap",
    "GiveUpSince",
    "RecurrenceRule",
    "RefreshEffect",
    "RefreshOutcome",
    "RefreshPolicy",
    "RefreshState",
    "RefreshTransition",
    "Schedule",
    "Strategy",
    "StrategyFunction",
]
