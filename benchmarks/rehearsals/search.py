"""Chooses the cells to run: a few fixed batches at first, then the neighbours of the best one.

A grid of all batches would take hours. A device alone starts with three batches, and then half and
twice the best one are added until both have run, so that the best one is not at an edge.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.common.servers import Processors, short_name
from benchmarks.rehearsals.cell import Cell
from benchmarks.rehearsals.compare import at_place, best_of, timing
from benchmarks.rehearsals.methods import (
    Method,
    batch_of,
    defaults,
    fixed,
    kinds_of,
    neighbours,
    together,
)
from benchmarks.rehearsals.sets import SETS

Json = dict[str, Any]
CLOSE = 1.25  # seconds over those of the best, up to which a batch may be the best with other seeds


class Batches(NamedTuple):
    """The fixed batches of a kind of device."""

    first: Sequence[int]  # the first one is near the middle of the range
    least: int = 0  # limits of those that are added
    most: int = 0  # 0: none is added


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A set on a server, with the methods that it allows."""

    set_name: str
    server: str  # bundled name, or path of a description
    processors: Processors
    kinds: Collection[str]  # of methods
    batches: Mapping[str, Batches]  # by kind of device alone

    def first(self) -> list[Method]:
        """The methods of the first round: devices alone."""
        kinds = kinds_of(self.processors, self.kinds)
        methods = [
            fixed(self.processors, kind, rows)
            for kind in kinds
            for rows in self.batches[kind].first
        ]
        return [*methods, *defaults(self.processors, self.kinds)]

    def added(self, results: Sequence[Json]) -> Iterator[Method]:
        """The neighbours of the best fixed batch of each kind, among the results of this place.

        The best one is that for the late target, or for the early one if none reached the late one.
        """
        chosen = [result for result in results if batch_of(result["method"])]
        for kind in kinds_of(self.processors, self.kinds):
            found = (best_of(chosen, [kind], target) for target in ("late", "early"))
            best = next((each for each in found if each and each.reached), None)
            if best:
                yield from self.near(kind, best.method)

    def near(self, kind: str, name: str) -> Iterator[Method]:
        """The neighbours of a method of that kind and name; none if batches are given."""
        _, least, most = self.batches[kind]
        if most:
            yield from neighbours(self.processors, name, least, most)

    def together(self) -> list[Method]:
        """The methods with all processors."""
        return list(together(self.processors, self.kinds))

    def expected(self) -> list[Method]:
        """The methods if the first batch of each kind is the best one."""
        methods = self.first()
        for kind in kinds_of(self.processors, self.kinds):
            best = fixed(self.processors, kind, self.batches[kind].first[0])
            methods += self.near(kind, best.name)
        return list({method.name: method for method in [*methods, *self.together()]}.values())

    def cells(self, methods: Iterable[Method], seed: int) -> list[Cell]:
        """One cell for each method."""
        return [Cell(self.set_name, self.server, method, seed) for method in methods]


class Search:
    """The cells of all places, in the order in which they run."""

    def __init__(self, places: Iterable[Place], seeds: int) -> None:
        self._places, self._seeds = list(places), seeds
        self._alone: dict[Place, dict[str, Method]] = {}

    def expected(self) -> list[Cell]:
        """About the cells that will run; the results decide which batches really do."""
        return [
            cell
            for seed in range(self._seeds)
            for place in self._places
            for cell in place.cells(place.expected(), seed)
        ]

    def rounds(self, results: Sequence[Json]) -> Iterator[list[Cell]]:
        """Groups of cells; the caller adds their results to `results` before it takes the next.

        The first seed decides which batches run; the others repeat the fastest of them. Of a seed,
        cheap sets come first, and of a set, devices alone: the limit of the others depends on them.
        """
        names = dict.fromkeys(place.set_name for place in self._places)
        for seed in range(self._seeds):
            for name in sorted(names, key=lambda name: SETS[name].wall_s):
                places = [place for place in self._places if place.set_name == name]
                if seed == 0:
                    yield from self._searched(places, results)
                else:
                    yield [c for p in places for c in p.cells(self._repeated(p, results), seed)]
                yield [cell for p in places for cell in p.cells(p.together(), seed)]

    def _searched(self, places: Sequence[Place], results: Sequence[Json]) -> Iterator[list[Cell]]:
        """Devices alone with the first seed, until the neighbours of the best have run."""
        new = {place: {method.name: method for method in place.first()} for place in places}
        self._alone |= {place: {} for place in places}
        while any(new.values()):
            for place, methods in new.items():
                self._alone[place] |= methods
            yield [c for place, methods in new.items() for c in place.cells(methods.values(), 0)]
            new = {place: self._unknown(place, results) for place in places}

    def _repeated(self, place: Place, results: Sequence[Json]) -> list[Method]:
        """The methods that other seeds repeat: the default ones, and those that with the first seed
        took at most CLOSE times as long to a target as the fastest of their kind.
        """
        here = at_place(results, (place.set_name, short_name(place.server)))
        first = [result for result in here if result["seed"] == 0]
        close: set[str] = set()
        for target in SETS[place.set_name].targets:
            for kind in kinds_of(place.processors, place.kinds):
                names = [name for name, m in self._alone[place].items() if m.kind == kind]
                found = [each for name in names if (each := timing(first, name, target))]
                best = min((each.seconds for each in found), default=math.inf)
                close |= {each.method for each in found if each.seconds <= CLOSE * best < math.inf}
        return [m for m in self._alone[place].values() if m.name in close or not batch_of(m.name)]

    def _unknown(self, place: Place, results: Sequence[Json]) -> dict[str, Method]:
        """The methods that the results of the first seed add, without those that have run."""
        here = at_place(results, (place.set_name, short_name(place.server)))
        added = place.added([result for result in here if result["seed"] == 0])
        return {m.name: m for m in added if m.name not in self._alone[place]}
