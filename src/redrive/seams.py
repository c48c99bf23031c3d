"""Seams: the few places where a lower layer calls a higher one, each by name, all in this file.

Imports point downward only (law 2). Now and then a value of a low layer should nevertheless *do* something that only a
higher layer can: ``policy.call(fn)`` waits, and a policy may not know how to wait. The alternatives are worse:

* a second ``Policy`` class in the higher layer, with the verbs. Then two policies with the same fields are unequal, and
  the one that comes out of a database cannot be called. One policy value everywhere is what this project is about;
* a registration by the higher layer when it is imported. Then ``from redrive.policy import Policy``, or a policy
  unpickled in a fresh process, works or not depending on what somebody else has imported;
* an import inside the method. That is this file, only scattered and unseen.

So the lower layer says what it needs as a Protocol, and calls a `Seam`. The name of the provider is data here; it is
imported by the first call and not before (law 10). A seam is a debt: each one is listed, and none is added for comfort.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Seam", "in_process"]


class Seam:
    """Loads what a higher layer provides, on first use.

    Args:
        provider: ``module:attribute``.
    """

    __slots__ = ("_found", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._found: Any = None

    def __call__(self) -> Any:
        """The object that is provided; its type is a Protocol of the layer that asks."""
        if self._found is None:
            module, _, attribute = self._provider.partition(":")
            self._found = getattr(import_module(module), attribute)
        return self._found


in_process = Seam("redrive.retrying.runner:RUNNER")
"""Carries out calls in this process: `redrive.policy.call_methods.Runner`."""
