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


_last: list[Document] = []


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Run the examples of a page that pytest-xdist has given to another process: those above, and in time those below.

    The last ones take back what the page has put in force, such as a clock.
    """
    document = item.example.document if isinstance(item, SybilItem) else None
    while _last and _last[0] is not document:
        ended = _last.pop()
        _run(ended, None)
        from redrive.retrying.context import SCOPE  # not above: coverage begins after this module is loaded

        if SCOPE.get() is not None:
            pytest.fail(f"{ended.path} leaves a clock in force: end its scope in the last block")
    if document is not None:
        _last[:] = [document]
        _run(document, item.example.start)
        _started[document].add(item.example.start)


def _run(document: Document, until: int | None) -> None:
    started = _started.setdefault(document, set())
    for example in document.examples():
        if until is not None and example.start >= until:
            break
        if example.start not in started:
            started.add(example.start)
            example.evaluate()
