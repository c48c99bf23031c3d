"""When things are due: recurrences, cron expressions, and refreshes with retries between them. PURE.

Answers: when is the next occurrence; what becomes of a refresh that has failed? May import: `redrive.policy` and below,
python-dateutil, cronsim. Must never: read a clock, or store anything. Time zones come from the IANA database of the
system or of the package tzdata.

===========  =======================================================================================================
module       is about
===========  =======================================================================================================
`rule`       recurrence rules of RFC 5545, read strictly
`cron`       cron expressions; `ftl` reads them as FTL does
`schedule`   the union of both, in one place: instants, strictly increasing
`calendar`   how rules that are daily or slower are walked
`elapsed`    how faster ones are counted
`wall`       wall clocks, and the nights in which they are changed
`policy`     what is to be done to keep something fresh; `codec` writes it as data
`state`      where that stands
`refresh`    the moves from one state to the next (seed 004)
`starting`   those of them that begin an attempt
`failing`    what of them decides between a retry, the next planned refresh, and giving up
`play`       the moves one after the other, with a clock that jumps
`lint`       warnings about policies that are hardly meant so; `gaps` finds the figures
`english`    policies as sentences
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
