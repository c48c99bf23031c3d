"""The flag that sinks may be registered: the only check that code without a sink makes."""

from __future__ import annotations

# Code that may emit compares this one object and needs not even a function call. The modules that emit import this one,
# and the rest of the package only when there is an event to emit.
# An entry for each registered sink; empty if there are none.
LISTENERS: list[None] = []
