"""Rounds in which each subject is measured once, in turns. A subject that fails is reported; the others go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["in_turns", "turned"]

T = TypeVar("T")


def in_turns(
    names: Sequence[str], rounds: int, measure: Callable[[str], T], label: str = ""
) -> tuple[list[dict[str, T]], dict[str, str]]:
    """Measure subjects in turns, because the speed of a shared machine varies from minute to minute.

    Args:
        names: of the subjects.
        rounds: number of rounds.
        measure: measures one of them once.
        label: what is measured, for the lines on standard error.

    Returns:
        What each round measured, of the subjects that never failed; and the reason of each that failed. A subject that
        has failed is not measured again.
    """
    measured: list[dict[str, T]] = []
    failed: dict[str, str] = {}
    for number in range(1, rounds + 1):
        figures = {}
        for name in turned([each for each in names if each not in failed], number):
            print(f"{label}round {number}: {name}", file=sys.stderr, flush=True)
            try:
                figures[name] = measure(name)
            except Exception as error:  # noqa: BLE001 - the code of a subject may raise anything
                failed[name] = f"{type(error).__name__}: {error}"
                print(f"{name} failed: {failed[name]}", file=sys.stderr, flush=True)
        measured.append(figures)
    return [{name: each for name, each in figures.items() if name not in failed} for figures in measured], failed


def turned(chosen: Sequence[str], number: int) -> Sequence[str]:
    """Return the order of the subjects in a round: another one begins each time.

    Args:
        chosen: names of subjects.
        number: of the round.
    """
    first = number % max(len(chosen), 1)
    return [*chosen[first:], *chosen[:first]]
