"""The schema version of a database, and whether this version of redrive can work with it. PURE.

The table ``redrive_meta`` has the version of the schema, and under ``compatible`` the oldest version of redrive that
can still work with it. A migration of the phase ``pre`` leaves that value as it is: old and new workers run together
during a rolling deployment. A migration of the phase ``post`` raises it to its own number.
"""

from __future__ import annotations

import msgspec

from redrive.errors import SchemaTooNew, StoreError, StoreOpenError
from redrive.stores.query import Query, Steps, reads


class Schema(msgspec.Struct, frozen=True, gc=False):
    """The schema of a database.

    Attributes:
        version: the number of the last migration.
        compatible: the oldest version of redrive that can work with it.
    """

    version: int
    compatible: int

    def suits(self, latest: int) -> bool:
        """Return True if code of the version `latest` can work with this schema."""
        return self.compatible <= latest <= self.version


def found(version: str | None, compatible: str | None) -> Schema:
    """Return the schema for the values of ``schema`` and ``compatible`` in ``redrive_meta``.

    Without ``compatible``, no other version can work with the schema. Raise `StoreOpenError` if the values are no
    versions.
    """
    for each in (version, version if compatible is None else compatible):
        if each is None or not (each.isascii() and each.isdecimal()):
            raise StoreOpenError(
                "there is a table redrive_meta without the version of the schema: it belongs to another program, or is "
                "damaged. Use another file, or another schema (?schema=name); nothing was changed"
            )
    return Schema(int(version or 0), int(compatible or version or 0))


@reads
def schema() -> Steps[Schema]:
    """Return the schema of the database, or raise `StoreOpenError`."""
    version = yield Query("meta", {"key": "schema"})
    compatible = yield Query("meta", {"key": "compatible"})
    return found(version[0][0] if version else None, compatible[0][0] if compatible else None)


def mismatch(schema: Schema, latest: int, name: str) -> StoreError | None:
    """Return the error if code of the version `latest` cannot work with a schema; `name` is that of the database."""
    if schema.suits(latest):
        return None
    if schema.version < latest:
        return StoreOpenError(
            f"{name} has schema {schema.version}, and this redrive works with schema {latest}: redrive db migrate "
            "brings it there"
        )
    return SchemaTooNew(
        f"{name} has schema {schema.version}, and this redrive supports schemas up to {latest}: a newer redrive "
        "has migrated it. Install that version; nothing was changed"
    )
