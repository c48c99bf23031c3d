"""Refreshes in a model of Django: the fields, the criteria for due rows, and the moves.

The module never commits. If the database locks rows, call it within ``transaction.atomic()``; Django requires it.

::

    class BigTable(RefreshFields):
        input_url = models.URLField()


    with transaction.atomic():
        for moved in refreshes(BigTable, policy).start_due():
            if moved.outcome is RefreshOutcome.STARTED:
                transaction.on_commit(partial(send, moved.row.pk, moved.state.attempt_uid))
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models

from redrive.clock import Clock
from redrive.contrib.refresh.refreshes import TableRefreshes
from redrive.errors import ConfigurationError
from redrive.schedule import RefreshPolicy, RefreshState

__all__ = ["RefreshFields", "due", "overdue", "refresh_indexes", "refreshes"]

_FIELDS = RefreshState.__struct_fields__
# Hexadecimal digits.
_UID = 32
# Each of the two conditions has a partial index, so that finding due rows costs the same for a million rows as for ten.
_WAITS = models.Q(attempt_uid__isnull=True, disabled_until_update=False, paused=False)


# Indexes of the mixin are named ``<app>_<model>_due`` and ``<app>_<model>_overdue``, and Django allows 30 characters.
def refresh_indexes(prefix: str) -> list[Any]:
    """Return the indexes for due rows, for a model with a ``Meta`` of its own; `prefix` begins their names."""
    return [
        models.Index(fields=["refresh_at"], condition=_WAITS, name=f"{prefix}_due"),
        models.Index(fields=["sweep_at"], condition=models.Q(sweep_at__isnull=False), name=f"{prefix}_overdue"),
    ]


# ``save()`` writes all fields of an object as they were read, so it would undo a move that was written in between.
class RefreshFields(models.Model):  # type: ignore[misc] # Django has no type information
    """An abstract model with the refresh state of a row; see `redrive.schedule.RefreshState`."""

    refresh_at = models.DateTimeField(null=True, editable=False)
    deadline_at = models.DateTimeField(null=True, editable=False)
    attempt_no = models.PositiveIntegerField(default=0, editable=False)
    attempt_uid = models.CharField(max_length=_UID, null=True, editable=False)  # noqa: DJ001 - None is no token
    started_at = models.DateTimeField(null=True, editable=False)
    due_at = models.DateTimeField(null=True, editable=False)
    failing_since = models.DateTimeField(null=True, editable=False)
    succeeded_at = models.DateTimeField(null=True, editable=False)
    attempts_since_success = models.PositiveIntegerField(default=0, editable=False)
    planned_at = models.DateTimeField(null=True, editable=False)
    disabled_until_update = models.BooleanField(default=False, editable=False)
    disabled_reason = models.TextField(null=True, editable=False)  # noqa: DJ001 - None is no reason
    completed = models.BooleanField(default=False, editable=False)
    paused = models.BooleanField(default=False, editable=False)
    sweep_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        """Django's options; a ``Meta`` of the model inherits from this one."""

        abstract = True
        indexes: list[Any] = refresh_indexes("%(app_label)s_%(class)s")

    @property
    def refresh_state(self) -> RefreshState:
        """The state of the refresh, as it was read."""
        return RefreshState(**{each: getattr(self, each) for each in _FIELDS})


def due(now: datetime) -> Any:
    """Return a ``Q`` for rows that are due at `now`, an aware instant."""
    return models.Q(refresh_at__lte=now) & _WAITS


def overdue(now: datetime) -> Any:
    """Return a ``Q`` for rows that a sweep moves at `now`, an aware instant."""
    return models.Q(sweep_at__lte=now)


def refreshes(
    model: object,
    policy: RefreshPolicy | Callable[[Any], RefreshPolicy],
    *,
    using: str = "default",
    clock: Clock | None = None,
) -> TableRefreshes[Any]:
    """Return the moves of a model; each is made in the transaction that is open at the call.

    Args:
        model: with `RefreshFields`.
        policy: the refresh policy; or a function that returns it for a row.
        using: alias of the database.
        clock: by default the clock of this machine.

    Raises:
        ConfigurationError: the project stores times without time zones.
    """
    if not settings.USE_TZ:
        raise ConfigurationError(
            "refreshes need instants, and with USE_TZ = False Django keeps none: set USE_TZ = True"
        )
    return TableRefreshes(_Table(model, using), policy, clock=clock)


class _Table:
    """A model in a database; see `redrive.contrib.refresh.Rows`."""

    def __init__(self, model: Any, using: str) -> None:
        self._rows = model._base_manager.using(using)  # documented for third parties: all rows

    def due(self, now: datetime, limit: int) -> list[Any]:
        return list(self._rows.filter(due(now)).order_by("refresh_at").select_for_update(skip_locked=True)[:limit])

    def overdue(self, now: datetime, limit: int) -> list[Any]:
        return list(self._rows.filter(overdue(now)).order_by("sweep_at").select_for_update(skip_locked=True)[:limit])

    def find(self, key: object) -> Any:
        return self._rows.filter(pk=key).select_for_update().first()

    def state(self, row: Any) -> RefreshState:
        state: RefreshState = row.refresh_state
        return state

    def swap(self, row: Any, before: RefreshState, after: RefreshState, sweep_at: datetime | None) -> bool:
        written = {**{each: getattr(after, each) for each in _FIELDS}, "sweep_at": sweep_at}
        unchanged = {each: getattr(before, each) for each in _FIELDS}
        if self._rows.filter(pk=row.pk, **unchanged).update(**written) != 1:
            return False
        for name, value in written.items():
            setattr(row, name, value)
        return True
