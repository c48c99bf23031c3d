"""Integrations with other systems, one package or module each.

They classify the failures of a library or server: how far the call got, whether it may be repeated, and which error the
caller gets. May import `redrive.runtime` and below, and each module the one library that it adapts, which is an extra
of the installation. Must never be imported from below, so that ``import redrive`` loads no integration.
"""

from __future__ import annotations
