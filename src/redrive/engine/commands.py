"""The commands that screens, findings and errors recommend, quoted for a shell. PURE.

Names of queues, tasks and keys may be any text. A command that is pasted has each of them as one word, without an
effect of its own, and none of them as an option.
"""

from __future__ import annotations

import shlex

from redrive.engine.records import CONDITIONS, Filter

# Options without a value, each with an opposite.
_FLAGS = ("caught", "skipped")


def command(verb: str, *places: str, **options: str | bool | None) -> str:
    """Return a command.

    Args:
        verb: the words after ``redrive``, such as ``jobs list``.
        places: the App, names and ids.
        options: their values; True for one without a value; one that is None, False or empty is left out.
    """
    given: list[str] = []
    for name, value in options.items():
        if value:
            given += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    # Behind "--" no word is an option.
    words = [*given, "--", *places] if any(each.startswith("-") for each in places) else [*places, *given]
    return shlex.join(["redrive", *verb.split(), *words])


def of_jobs(verb: str, app: str, where: Filter, rest: str = "", **options: str | bool | None) -> str:
    """Return a command on the jobs that match a filter; `rest` has the conditions that are no options, as text."""
    given = {name: where.conditions[name] for name in CONDITIONS if name in where.conditions}
    texts = {name: str(value) for name, value in given.items() if name not in {"ids", *_FLAGS}}
    flags = {name: given.get(name) is True for name in _FLAGS}
    flags |= {f"not_{name}": given.get(name) is False for name in _FLAGS}
    places = [*map(str, where.ids or ()), *([rest] if rest else [])]
    return command(verb, app, *places, **texts, **flags, **options)
