"""What a database records of its schema, and whether a redrive can work with it. PURE.

The table ``redrive_meta`` has the version of the schema, and under ``compatible`` the oldest version whose code can
still work with it. A migration of the phase ``pre`` leaves that as it is: old and new workers run side by side during a
rolling deploy. One of the phase ``post`` raises it to its own number.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.errors import SchemaTooNew, StoreError, StoreOpenError
from redrive.stores.query import Query, Steps, reads

__all__ = ["Schema", "found", "mismatch", "schema"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a database.

    Attributes:
        version: the number of the last migration.
        compatible: the oldest version whose code can work with it.
    """

    version: int
    compatible: int

    def suits(self, latest: int) -> bool:
        """Return True if code of the version `latest` can work with this schema."""
        return self.compatible <= latest <= self.version


def found(version: str | None, compatible: str | None) -> Schema:
    """Read the values of ``redrive_meta``.

    Args:
        version: the value of ``schema``; None where there is no such row.
        compatible: the value of ``compatible``; without one, no other version can work with the schema.

    Raises:
        StoreOpenError: they are no versions.
    """
    for each in (version, version if compatible is None else compatible):
        if each is None or not (each.isascii() and each.isdecimal()):
            message = (
                "there is a table redrive_meta without the version of the schema: it belongs to another program, or is "
                "damaged. Use another file, or another schema (?schema=name); nothing was changed"
            )
            raise StoreOpenError(message)
    return Schema(int(version or 0), int(compatible or version or 0))


@reads
def schema() -> Steps[Schema]:
    """Read the schema of the database.

    Raises:
        StoreOpenError: the table ``redrive_meta`` does not have it.
    """
    version = yield Query("meta", {"key": "schema"})
    compatible = yield Query("meta", {"key": "compatible"})
    return found(version[0][0] if version else None, compatible[0][0] if compatible else None)


def mismatch(schema: Schema, latest: int, name: str) -> StoreError | None:
    """Say why code of one version cannot work with a schema.

    Args:
        schema: of the database.
        latest: the version of the code.
        name: of the database, for the message.

    Returns:
        The error to raise; None where it can.
    """
    if schema.suits(latest):
        return None
    if schema.version < latest:
        return StoreOpenError(
            f"{name} has schema {schema.version}, and this redrive works with schema {latest}: redrive db migrate "
            "brings it there"
        )
    return SchemaTooNew(
        f"{name} has schema {schema.version}, and this redrive knows schemas up to {latest}: a newer redrive "
        "has migrated it. Install that version; nothing was changed"
    )
