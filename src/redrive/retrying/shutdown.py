"""The end of the interpreter, in which a retry may fail for a reason that is not the function's.

From the end of the main thread on, other threads go on and may retry, but no thread can be started and no executor
takes work. The error of such an attempt must not replace the one that was retried, also if the end has begun in the
wait between both: a wait in another thread than the main one keeps the error.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from redrive.errors.foreign import is_a

_TEXTS = (
    "cannot schedule new futures after",
    "can't start new thread",
    "can't create new thread",
    "Executor shutdown has been called",
)

#: Stands for `threading` where that is not loaded yet.
NOT_LOADED = SimpleNamespace(_SHUTTING_DOWN=False)


def is_ending() -> bool:
    """Return True from the end of the main thread on."""
    # The attribute is older than Python 3.11, and set before executors stop to take work.
    return bool(getattr(sys.modules.get("threading", NOT_LOADED), "_SHUTTING_DOWN", False))


def may_end(wait: float) -> bool:
    """Return True if the interpreter ends, or may end in a wait of so many seconds: that of another thread may."""
    if is_ending():
        return True
    threading = sys.modules.get("threading")
    return wait > 0 and threading is not None and threading.get_ident() != threading.main_thread().ident


def is_refused(error: Exception) -> bool:
    """Return True if an attempt failed because the interpreter starts no threads and loads no modules any more."""
    if is_a(error, ImportError):
        return sys.meta_path is None
    return type(error) is RuntimeError and str(error).startswith(_TEXTS)
