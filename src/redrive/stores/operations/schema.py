"""The schema version of a database, and whether this version of redrive can work with it. PURE.

The table ``redrive_meta`` has the version of the schema, and under ``compatible`` the oldest version of redrive that
can still work with it. A migration of the phase ``pre`` leaves that value as it is: old and new workers run together
during a rolling deployment. A migration of the phase ``post`` raises it to its own number; the code to which it belongs
works without it, so that it can be run when the deployment has ended.
"""

from __future__ import annotations

import msgspec

from redrive.errors import SchemaTooNew, StoreError, StoreOpenError
from redrive.stores.query import Query, Statements, reads


class Schema(msgspec.Struct, frozen=True, gc=False):
    """The schema of a database.

    Attributes:
        version: the number of the last migration.
        compatible: the oldest version of redrive that can work with it.
    """

    version: int
    compatible: int

    def suits(self, code: Versions) -> bool:
        """Return True if the code can work with this schema."""
        return self.compatible <= code.latest and code.needed <= self.version


class Versions(msgspec.Struct, frozen=True, gc=False):
    """The schemas that code works with.

    Attributes:
        needed: the oldest one: the number of its last migration of the phase ``pre``.
        latest: the number of its last migration.
    """

    needed: int
    latest: int


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
def schema() -> Statements[Schema]:
    """Return the schema of the database, or raise `StoreOpenError`."""
    values = dict((yield Query("schema_version")))
    return found(values.get("schema"), values.get("compatible"))


def mismatch(schema: Schema, code: Versions, name: str) -> StoreError | None:
    """Return the error if the code cannot work with a schema; `name` is that of the database."""
    if schema.suits(code):
        return None
    if schema.version < code.needed:
        return StoreOpenError(
            f"{name} has schema {schema.version}, and this redrive works with schema {code.needed}: redrive db migrate "
            "APP brings it there"
        )
    return SchemaTooNew(
        f"{name} has schema {schema.version}, and this redrive supports schemas up to {code.latest}: a newer redrive "
        "has migrated it. Install that version; nothing was changed"
    )
