"""What tasks and job handles need of the App that they belong to.

They import this, and the App imports them: so a reader meets the parts before the whole, and imports go one way.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from redrive.app.payload import Signature
from redrive.policy import Policy
from redrive.stores.store import Store

__all__ = ["AppProtocol"]


class AppProtocol(Protocol):
    """The App, as its parts see it; each member is described there."""

    @property
    def store(self) -> Store:
        """The database."""
        ...

    def now(self) -> datetime | None:
        """The injected instant, in tests."""
        ...

    @property
    def actor(self) -> str:
        """Who operates, where nobody else is named."""
        ...

    def check(self) -> None:
        """Check that the app is whole."""
        ...

    def policy(self, retry: Policy | str | None, where: str, *, instead_of: Policy | None = None) -> Policy:
        """Make a durable policy."""
        ...

    def check_policy(self, policy: Policy, signature: Signature) -> None:
        """Check that what a policy names is there."""
        ...

    def find(self, name: str) -> Any:  # noqa: ANN401 - a task, whose module imports this one
        """Find a task by its name."""
        ...

    def read_result(self, task: str, raw: bytes | None) -> Any:  # noqa: ANN401 - the user's
        """Read a stored result."""
        ...
