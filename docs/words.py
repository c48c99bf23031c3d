"""The words that a reader of the documentation reads, by folder: ``make docs-words``.

Code, and the records of decisions and the reference, are not counted: they are looked up, not read.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent

NOT_READ = {"_build", "adr", "reference"}

_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^(```+).*?^\1\s*$", re.DOTALL | re.MULTILINE)


def words(path: Path) -> int:
    """Return the number of words on a page, tables and headings included, code left out."""
    return len(_CODE.sub("", _HIDDEN.sub("", path.read_text())).split())


def by_folder() -> Counter[str]:
    """Return the words of each folder."""
    found: Counter[str] = Counter()
    for path in ROOT.rglob("*.md"):
        folder = path.relative_to(ROOT).parts[0] if path.parent != ROOT else "."
        if folder not in NOT_READ:
            found[folder] += words(path)
    return found


if __name__ == "__main__":
    counted = by_folder()
    lines = [*counted.most_common(), ("together", counted.total())]
    sys.stdout.writelines(f"{number:7,}  {folder}\n" for folder, number in lines)
