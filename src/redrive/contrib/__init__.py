"""Integrations with other systems, one package or module each.

They classify the failures of a library or server: how far the call got, whether it may be repeated, and which error the
caller gets. May import `redrive.runtime` and below, and each module the one library that it adapts, which is an extra
of the installation. Must never be imported from below, so that ``import redrive`` loads no integration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import the library of an extra in the block; a missing package raises an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f'this needs a package that is not installed: pip install "redrive[{name}]" ({error})'
        raise ModuleNotFoundError(message, name=error.name, path=error.path) from error
