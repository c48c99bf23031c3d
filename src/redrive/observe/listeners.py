"""Whether anybody may be listening: the one thing that is looked at where nobody is."""

from __future__ import annotations

__all__ = ["LISTENERS"]

LISTENERS: list[None] = []
"""An entry for each reason to think that somebody listens; empty, nobody does.

It is always this object, so that those who may tell something need not even call a function to learn that they need
not. The modules that tell import this one, and the rest of this package when there is something to tell (law 10).
"""
