"""Tasks that are declared without an App, and included in one later."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from redrive.app.declarations import Declarations
from redrive.app.protocol import AppProtocol
from redrive.app.registry import Registry
from redrive.errors import ConfigurationError, TaskDefinitionError


class Tasks(Declarations):
    """A collection of tasks, crons, refreshes and topics, declared without an App.

    It has the declarations of an App: `task`, `cron`, `refresh` and `topic`. `redrive.App.include` makes them tasks of
    an app; until then they can be called, but not enqueued. A library can so offer tasks, and modules of a program need
    not import the module of the app.
    """

    def __init__(self) -> None:
        self._app: AppProtocol | None = None
        self._registry = Registry(cast("AppProtocol", self), ())

    def __repr__(self) -> str:
        return f"Tasks({', '.join(self._registry.tasks)})"

    def now(self) -> datetime | None:
        """Return the present instant of an injected clock; None before the collection is included."""
        return None if self._app is None else self._app.now()

    def included_in(self, app: AppProtocol, registry: Registry) -> None:
        """Make all tasks of this collection, and those that are declared later, tasks of an app."""
        if self._app is not None:
            raise TaskDefinitionError(f"{self!r} is included in an app already; a collection belongs to one app")
        registry.adopt(self._registry, app)
        self._app, self._registry = app, registry

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of an App
        """Return an attribute of the app."""
        # Tasks see the collection as their app, so that handles that were made before the inclusion work after it.
        app = self.__dict__.get("_app")
        if app is None or name.startswith("__"):
            if hasattr(type(self), name) or not hasattr(AppProtocol, name):
                raise AttributeError(f"Tasks has no attribute {name!r}")
            known = ", ".join(self._registry.tasks)
            raise ConfigurationError(
                f"the tasks of this collection ({known}) belong to no App yet: include it with app.include(tasks)"
            )
        return getattr(app, name)
