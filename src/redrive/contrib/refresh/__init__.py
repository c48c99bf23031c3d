"""Refreshes that store their state in your own table: library mode.

Integrations never commit and never send anything. The caller does both, in this order. SQLAlchemy and Django are each
imported only by the module of that name.

===================  ============================================================================================
you have             take
===================  ============================================================================================
SQLAlchemy 2         `redrive.contrib.refresh.sqlalchemy`: a mixin with the columns, their indexes, and the moves
Django               `redrive.contrib.refresh.django`: an abstract model with the same
another library      `TableRefreshes` over a `Rows` of your own: five small methods
a file, a dict       `redrive.schedule.RefreshState` and the moves themselves; a field is a column
===================  ============================================================================================
"""

from redrive.contrib.refresh.refreshes import MovedRow, Rows, TableRefreshes

__all__ = ["MovedRow", "Rows", "TableRefreshes"]
