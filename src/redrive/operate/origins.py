"""Links from a job to the page of what created it."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from redrive.engine.origin import Kind, Origin
from redrive.operate.exchange import path_to


def page_of(origin: Origin) -> str:
    """Return the path of the page of what created a job."""
    match origin.kind:
        case Kind.CRON:
            return path_to("schedules", origin.name)
        case Kind.REFRESH:
            return f"{path_to('schedules', origin.name)}/item?{urlencode({'key': origin.part})}"
        case Kind.RUN:
            return path_to("runs", origin.name, origin.part)
        case Kind.MACHINE:
            return path_to("machines", origin.name, origin.part)
        case Kind.TOPIC:
            return path_to("topics", origin.name, re.split("[#@]", origin.part)[0])
        case Kind.BATCH:
            return path_to("jobs", origin.part)
