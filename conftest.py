"""Executes the examples of README.md, docs/ and the docstrings of src/ as tests.

Two forms count: ``python`` fences in Markdown, and ``>>>`` sessions in docstrings. The trap: a ``>>>`` session in a
``pycon`` fence is skipped by Sybil's Markdown parsers without a word, so that a wrong answer passes;
``tests/architecture/test_docs.py`` therefore refuses such fences. Examples of one file share their names, in order.
"""

from __future__ import annotations

from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

_markdown = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "docs/**/*.md"], excludes=["docs/_build/**"]
)
_docstrings = Sybil(
    parsers=[DocTestParser()],
    patterns=["src/redrive/**/*.py"],
    document_types={".py": PythonDocStringDocument},
)

pytest_collect_file = (_markdown + _docstrings).pytest()
