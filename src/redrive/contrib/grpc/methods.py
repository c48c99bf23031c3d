"""The declarations of methods in their ``.proto`` files.

A method may be declared with ``option idempotency_level = IDEMPOTENT;`` or ``NO_SIDE_EFFECTS``. The generated module of
the service, which the program imports for its stubs, registers that in the default descriptor pool of ``protobuf``.
This module does not import ``protobuf``: a program without it has no such declarations.
"""

from __future__ import annotations

import sys
from typing import Any

_POOL = "google.protobuf.descriptor_pool"
# The values of ``google.protobuf.MethodOptions.IdempotencyLevel``; 0 is IDEMPOTENCY_UNKNOWN.
_NO_SIDE_EFFECTS, _IDEMPOTENT = 1, 2


def is_idempotent(method: str) -> bool:
    """Return True if a method is declared to be idempotent or to have no side effects.

    Args:
        method: its path, ``/shop.Orders/LookUp``. Without a declaration or a descriptor it is not idempotent.
    """
    module: Any = sys.modules.get(_POOL)
    if module is None:
        return False
    try:
        found = module.Default().FindMethodByName(method.removeprefix("/").replace("/", "."))
    except KeyError:
        return False
    return found.GetOptions().idempotency_level in (_NO_SIDE_EFFECTS, _IDEMPOTENT)
