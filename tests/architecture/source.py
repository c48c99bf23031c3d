"""The source tree as data, for the tests of architecture."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "redrive"
DOCS = ROOT / "docs"


def modules() -> list[Path]:
    """Return all modules of redrive, sorted."""
    return sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    """Return the path of a file, relative to the root of the checkout."""
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions and methods of a module, nested ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function without decorators and docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def markdown() -> list[Path]:
    """Return the README and all pages of the documentation."""
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(pages)]


def headings(page: Path) -> set[str]:
    """Return the headings of a page without code marks."""
    return {line.lstrip("#").strip().replace("`", "") for line in page.read_text().splitlines() if line.startswith("#")}
