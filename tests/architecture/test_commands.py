"""The commands that the code recommends."""

from __future__ import annotations

import re
from pathlib import Path

import redrive

SOURCE = Path(redrive.__file__).parent

# A command with a name in braces, in a text.
_UNQUOTED = re.compile(
    r"redrive (?:db|doctor|enqueue|errors list|errors show|health|jobs|machines|operations|plan|queues|runs|schedules"
    r"|topics|web|workers?)\b[^\"'\n:;(]*\{(?!error|text|key)"
)


def test_each_recommended_command_is_quoted_for_a_shell():
    """No text puts a name into a command: `redrive.engine.commands.command` quotes it."""
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _UNQUOTED.search(line)
    ]

    assert [] == found
