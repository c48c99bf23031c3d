"""The tests of httpx, run with httpx2: both integrations have one source, and the packages differ in their details."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tests.contrib.httpx.server

FOLDER = Path(tests.contrib.httpx.server.__file__).parent

REPLACED = {
    "import httpx\n": "import httpx2 as httpx\n",
    "from redrive.contrib.httpx import": "from redrive.contrib.httpx2 import",
    # Helpers that use a client; the server is the same.
    "from tests.contrib.httpx.test_": "from tests.contrib.httpx2.test_",
}


def twin(name: str, into: dict[str, Any]) -> None:
    """Run the source of a module of `tests.contrib.httpx` with httpx2, and put what it defines into another module."""
    path = FOLDER / f"{name}.py"
    source = path.read_text()
    for here, there in REPLACED.items():
        source = source.replace(here, there)
    exec(compile(source, path, "exec"), into)  # noqa: S102 - of this repository
