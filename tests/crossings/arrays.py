"""Covering arrays: rows that contain every pair, or every triple, of values of different factors.

A table of factors is data. A combination that makes no sense is a `Void` with its reason; all others must be in a row.
The order of the values is drawn from a seed, so that another seed gives other rows with the same pairs.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from allpairspy import AllPairs

SEED = int(os.environ.get("REDRIVE_CROSSINGS_SEED", "37"))
"""Of the rows; printed with them."""

LONG = os.environ.get("REDRIVE_CROSSINGS") == "long"
"""True for `make crossings`: triples of the tables that have them."""

WEIGHTS = {"sqlite": 6, "process": 0.3}
"""Values with more or fewer rows than the others of their factor.

A scenario takes several times as long on PostgreSQL, and in a child process, whose start takes most of it.
"""

Row = Mapping[str, str]
"""The value of each factor."""

Combination: TypeAlias = frozenset[tuple[str, str]]
"""Values of some factors."""


@dataclass(frozen=True)
class Void:
    """A combination of values that makes no sense.

    Attributes:
        why: the reason.
        when: the values by factor; it is void if each factor has one of its values.
    """

    why: str
    when: Mapping[str, Sequence[str]]

    def covers(self, row: Row) -> bool:
        """Return True if the row contains this combination."""
        return all(row.get(factor) in values for factor, values in self.when.items())


@dataclass(frozen=True)
class Table:
    """The factors of one concept.

    Attributes:
        name: of the concept.
        factors: the values of each factor.
        voids: the combinations that make no sense.
        triples: True if the long form covers triples.
        size: the number of factors of which the ordinary form covers all combinations.
    """

    name: str
    factors: Mapping[str, Sequence[str]]
    voids: Sequence[Void] = field(default_factory=tuple)
    triples: bool = False
    size: int = 2

    def rows(self) -> list[Row]:
        """Return rows that contain every pair, in the long form every triple, that is not void."""
        strength, draw = self.strength, random.Random(f"{SEED} {self.name}")
        names = list(self.factors)
        # The factor with the most values first: the others are chosen to fit it.
        names.sort(key=lambda each: -len(self.factors[each]))
        values = [draw.sample(list(self.factors[name]), len(self.factors[name])) for name in names]
        pairs = AllPairs(values, filter_func=lambda some: not self.is_void(_named(names, some)), n=strength)
        rows = [_named(names, chosen) for chosen in pairs]
        return self._balanced([*rows, *self._missing(rows, strength)], strength)

    @property
    def strength(self) -> int:
        """The number of factors of which all combinations are covered."""
        return 3 if LONG and self.triples else self.size

    def is_void(self, row: Row) -> bool:
        """Return True if the row, which may lack factors, contains a combination that makes no sense."""
        return any(each.covers(row) for each in self.voids)

    # The library stops where the next row would bring nothing new in its order of search, which voids can cause early.
    def _missing(self, rows: Sequence[Row], strength: int) -> list[Row]:
        """Return rows for the combinations that are possible and in none of the rows."""
        seen, draw = self.seen(rows, strength), random.Random(f"{SEED} {self.name} more")
        more: list[Row] = []
        for wanted in self._combinations(strength):
            if wanted in seen:
                continue
            row = self._completed(dict(wanted), seen, strength, draw)
            if row is not None:
                more.append(row)
                seen |= self.seen([row], strength)
        return more

    def _completed(self, part: Row, seen: AbstractSet[Combination], strength: int, draw: random.Random) -> Row | None:
        """Return a row with these values that is not void and contains much that is new; None if there is none."""
        if self.is_void(part):
            return None
        name = next((name for name in self.factors if name not in part), None)
        if name is None:
            return {name: part[name] for name in self.factors}

        def gain(value: str) -> tuple[int, float]:
            others = itertools.combinations(part.items(), strength - 1)
            return sum(frozenset({*each, (name, value)}) not in seen for each in others), draw.random()

        for value in sorted(self.factors[name], key=gain, reverse=True):
            if (row := self._completed({**part, name: value}, seen, strength, draw)) is not None:
                return row
        return None

    def missing(self, rows: Sequence[Row]) -> list[Combination]:
        """Return the combinations that are possible and in none of the rows."""
        seen, draw = self.seen(rows, self.strength), random.Random(SEED)
        left = [each for each in self._combinations(self.strength) if each not in seen]
        return [each for each in left if self._completed(dict(each), seen, self.strength, draw) is not None]

    def _balanced(self, rows: list[Row], strength: int) -> list[Row]:
        """Return the rows with the values of each factor as even as the combinations allow."""
        count = Counter(each for row in rows for each in itertools.combinations(sorted(row.items()), strength))
        order = random.Random(f"{SEED} {self.name} even").sample(range(len(rows)), len(rows))
        for name, number in itertools.product(self.factors, order):
            used = Counter(row[name] for row in rows)
            rare = min(self.factors[name], key=lambda value: used[value] / WEIGHTS.get(value, 1))
            old, new = rows[number], {**rows[number], name: rare}
            lost = [each for each in itertools.combinations(sorted(old.items()), strength) if (name, old[name]) in each]
            if (
                rare == old[name]
                or used[old[name]] <= used[rare] / WEIGHTS.get(rare, 1) + 1
                or self.is_void(new)
                or any(count[each] == 1 for each in lost)
            ):
                continue
            rows[number] = new
            count.subtract(lost)
            count.update(each for each in itertools.combinations(sorted(new.items()), strength) if (name, rare) in each)
        return rows

    def _combinations(self, size: int) -> list[Combination]:
        return [
            frozenset(zip(names, values, strict=True))
            for names in itertools.combinations(self.factors, size)
            for values in itertools.product(*(self.factors[name] for name in names))
        ]

    def seen(self, rows: Sequence[Row], size: int) -> set[Combination]:
        """Return the combinations of this size that the rows contain."""
        return {frozenset(each) for row in rows for each in itertools.combinations(row.items(), size)}


def _named(names: Sequence[str], values: Sequence[str]) -> Row:
    return dict(zip(names, values, strict=False))


def ids(rows: Sequence[Row], table: Table) -> list[str]:
    """Return the name of each row: its number and its values."""
    return [f"{n:03}-" + "-".join(row[name] for name in table.factors) for n, row in enumerate(rows)]
