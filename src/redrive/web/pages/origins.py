"""Links from a job to the page of what created it."""

from __future__ import annotations

import re
from urllib.parse import quote

from redrive.engine.origin import Kind, Origin


def page_of(origin: Origin) -> str:
    """Return the path of the page of what created a job."""
    name, part = quote(origin.name, safe=""), quote(origin.part, safe="")
    match origin.kind:
        case Kind.CRON:
            return f"/schedules/{name}"
        case Kind.REFRESH:
            return f"/schedules/{name}/item?key={part}"
        case Kind.RUN:
            return f"/runs/{name}/{part}"
        case Kind.MACHINE:
            return f"/machines/{name}/{part}"
        case Kind.TOPIC:
            return f"/topics/{name}/{quote(re.split('[#@]', origin.part)[0], safe='')}"
