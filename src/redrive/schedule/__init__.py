"""Schedules: recurrences, cron expressions, and refreshes with retries between planned times. PURE.

May import: `redrive.policy` and below, python-dateutil, cronsim. Must never: read a clock, or store anything. Time
zones come from the IANA database of the system or of the package tzdata.

===========  =======================================================================================================
module       subject
===========  =======================================================================================================
`rule`       recurrence rules of RFC 5545
`cron`       cron expressions; `ftl` reads them as FTL does
`schedule`   the union of both, in one time zone: instants, strictly increasing
`calendar`   expansion of daily and slower rules
`elapsed`    expansion of hourly and faster rules
`timezone`   wall-clock times and instants
`policy`     the refresh policy; `options` has its enumerations, `codec` its JSON
`state`      the state of a refresh
`refresh`    the transitions of that state
`starting`   those that begin an attempt
`failing`    the choice between a retry, the next planned refresh, and giving up
`dry_run`    the transitions in sequence, in virtual time
`lint`       warnings about questionable policies; `gaps` finds the figures
`english`    policies as English sentences
===========  =======================================================================================================
"""

from redrive.schedule.cron import CronExpression
from redrive.schedule.options import Action, Exhausted, Strategy
from redrive.schedule.policy import RefreshPolicy
from redrive.schedule.rule import RecurrenceRule
from redrive.schedule.schedule import Schedule
from redrive.schedule.state import Effect, RefreshOutcome, RefreshState, RefreshTransition
from redrive.schedule.timezone import Gap

__all__ = [
    "Action",
    "CronExpression",
    "Effect",
    "Exhausted",
    "Gap",
    "RecurrenceRule",
    "RefreshOutcome",
    "RefreshPolicy",
    "RefreshState",
    "RefreshTransition",
    "Schedule",
    "Strategy",
]
