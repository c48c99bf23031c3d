"""What redrive knows about other people's systems, one package or module each.

It answers what a failure of some library or server means: how far the call got, whether it may be repeated, and what
the caller should see.

May import `redrive.runtime` and what is below, and each module the one library that it adapts, which is an extra of the
installation. Must never be imported from below: ``import redrive`` loads nothing of it (law 10).
"""

from __future__ import annotations
