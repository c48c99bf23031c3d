"""Where the demo finds its program, and where it leaves its files.

The program that the demo runs is an example like any other: ``examples/webhooks`` in a checkout. The wheel carries the
same files as ``redrive/_examples/webhooks``, so the demo works after a plain ``pip install`` too.

Beside a database ``shop.db`` stand ``shop.db.ledger.jsonl`` (the receiver's), ``shop.db.dead-letters.jsonl`` (the catch
task's) and ``shop.db.log`` (what workers and receiver print). A later run on the same database continues them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from redrive.errors import ConfigurationError

__all__ = ["PACKAGE", "Files", "program_folder"]

PACKAGE = Path(__file__).parents[2]
"""The folder of redrive itself."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one demo database.

    Attributes:
        database: the SQLite file.
    """

    database: Path

    @classmethod
    def of(cls, db: str) -> Files:
        """Understand what was given as ``--db``.

        Args:
            db: a path, or a ``sqlite:///`` URL.

        Returns:
            The files, by absolute paths.

        Raises:
            ConfigurationError: it is the URL of something else, or of nothing that stays on disk.
        """
        parts = urlsplit(db) if "://" in db else None
        path = db if parts is None else unquote(parts.path.removeprefix("/"))
        if path in {"", ":memory:"} or (parts is not None and (parts.scheme != "sqlite" or parts.netloc)):
            raise ConfigurationError(
                f"the demo needs a SQLite file that several processes can open, not {db!r}: "
                "give a path (--db demo.db) or a URL (--db sqlite:///demo.db)"
            )
        return cls(Path(path).absolute())

    @property
    def url(self) -> str:
        """The database's URL."""
        return f"sqlite:///{quote(str(self.database))}"

    @property
    def ledger(self) -> Path:
        """What the receiver saw."""
        return self._beside("ledger.jsonl")

    @property
    def dead_letters(self) -> Path:
        """What could not be delivered."""
        return self._beside("dead-letters.jsonl")

    @property
    def log(self) -> Path:
        """What the other processes print."""
        return self._beside("log")

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables by which the example learns where its files are."""
        return {"WEBHOOKS_DB": self.url, "WEBHOOKS_DEAD_LETTERS": str(self.dead_letters)}

    def _beside(self, ending: str) -> Path:
        return self.database.with_name(f"{self.database.name}.{ending}")


def program_folder() -> Path:
    """The folder of the webhook example.

    Raises:
        ConfigurationError: this installation came without it.
    """
    for folder in (PACKAGE / "_examples" / "webhooks", PACKAGE.parents[1] / "examples" / "webhooks"):
        if (folder / "delivery.py").exists():
            return folder
    raise ConfigurationError("this installation has no examples: install redrive from its wheel, or run in a checkout")
