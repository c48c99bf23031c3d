"""Properties of the Django model only: its indexes, and its settings."""

from __future__ import annotations

import pytest

from redrive.errors import ConfigurationError
from redrive.schedule import RefreshState
from tests.contrib.refresh.conftest import EVERY_TWO_HOURS, OfDjango, saved


@pytest.fixture
def table():
    """Create the model's table."""
    yield OfDjango()
    from django.db import connections

    connections.close_all()


@pytest.mark.parametrize(("name", "column"), [("due", "refresh_at"), ("overdue", "sweep_at")])
def test_due_rows_are_found_by_an_index(table, name, column):
    """Queries for due rows use the partial indexes."""
    from redrive.contrib.refresh import django

    wanted = table.model.objects.filter(getattr(django, name)(table.clock.now())).order_by(column)

    assert f"sample_bigtable_{name}" in wanted.explain()
    assert "B-TREE" not in wanted.explain()


def test_a_poller_that_loses_a_start_does_not_write_the_row(table):
    """Rows that another process has started since they were read are not written."""
    from redrive.contrib.refresh.django import _Table

    saved(table)
    rows = _Table(table.model, "default")
    (row,) = rows.due(table.clock.now(), 1)
    read = row.refresh_state
    with table.within() as moves:
        moves.start_due()

    assert not rows.swap(row, read, RefreshState(), None)
    assert 1 == table.row(row.pk).attempt_no


def test_a_field_is_a_field(table):
    """Models have the fields of the state and ``sweep_at``."""
    names = {each.name for each in table.model._meta.get_fields()}

    assert names == set(RefreshState.__struct_fields__) | {"sweep_at", "id", "plan"}


def test_a_project_without_time_zones_is_refused(table, settings_without_zones):
    """Projects with ``USE_TZ = False`` get an error that names the setting."""
    from redrive.contrib.refresh.django import refreshes

    with pytest.raises(ConfigurationError, match="set USE_TZ = True"):
        refreshes(table.model, EVERY_TWO_HOURS)


@pytest.fixture
def settings_without_zones(table):
    """Disable time zones, as in old projects."""
    from django.test import override_settings

    with override_settings(USE_TZ=False):
        yield
