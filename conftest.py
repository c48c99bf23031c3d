"""The examples of README.md, docs/ and the docstrings of src/ as tests.

There are two forms: ``python`` fences in Markdown, and ``>>>`` sessions in docstrings. Sybil's Markdown parsers
silently skip a ``>>>`` session in a ``pycon`` fence, so ``tests/architecture/test_docs.py`` refuses such fences.
Examples of one file run in order and share their names.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pytest
from sybil import Document, Sybil
from sybil.document import PythonDocStringDocument
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

_markdown = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
    excludes=["docs/_build/**"],
)
_docstrings = Sybil(
    parsers=[DocTestParser()],
    patterns=["src/redrive/**/*.py"],
    document_types={".py": PythonDocStringDocument},
)

pytest_collect_file = (_markdown + _docstrings).pytest()


_started: WeakKeyDictionary[Document, set[int]] = WeakKeyDictionary()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Run the examples above an example first where pytest-xdist has given them to another process."""
    if not isinstance(item, SybilItem):
        return
    started = _started.setdefault(item.example.document, set())
    for example in item.example.document.examples():
        if example.start >= item.example.start:
            break
        if example.start not in started:
            started.add(example.start)
            example.evaluate()
    started.add(item.example.start)
