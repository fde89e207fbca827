"""Runs the cells that have no result yet, in several processes."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.result_store import ResultStore
from benchmarks.rehearsals.cell import Cell, refreshed
from benchmarks.rehearsals.methods import batch_of
from benchmarks.rehearsals.schedule import as_duration, limit, remaining_s

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a run of the matrix."""

    within: float  # maximum of a cell, as a multiple of the better device's simulated seconds
    jobs: int  # cells at the same time
    budget_s: float  # real seconds after which no other cell starts
    cell_s: float  # real seconds after which a cell is killed
    retry: bool = False  # whether cells that failed run again


@dataclass(slots=True)
class Matrix:
    """The results of cells: those that are stored, and those that `run` adds."""

    data: Path
    store: ResultStore
    limits: Limits
    program: Sequence[str]  # that rehearses a cell
    results: list[Json] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)  # when the budget began

    def load(self, cells: Iterable[Cell], ignored_if_fixed: Collection[str] = ()) -> list[Cell]:
        """Add the stored results of `cells`; return the cells without one, in their order.

        Settings whose names are in `ignored_if_fixed` may differ from those of the results of cells
        with fixed batches.
        """
        missing = []
        for cell in cells:
            ignored = ignored_if_fixed if batch_of(cell.method.name) else ()
            result = self.store.load(cell.name, cell.settings(self.limits.within), ignored)
            if result is None or (result["error"] and self.limits.retry):
                missing.append(cell)
            else:
                self.results.append(refreshed(result))
        return missing

    def load_all(self, places: Collection[tuple[str, str]], kinds: Collection[str]) -> None:
        """Add all stored results of these places (set, server) and kinds, of any sources."""
        for found in self.store.all():
            if (found["set"], found["server"]) in places and found["kind"] in kinds:
                self.results.append(refreshed(found))

    def run(self, cells: Sequence[Cell], report: Callable[[Json, str], None]) -> list[Cell]:
        """Run `cells`; return those for which no time was left.

        `report` is called with each result, after it was written, and with a text about the rest.
        """
        todo = list(cells)
        with ThreadPoolExecutor(self.limits.jobs) as pool:
            running: dict[Future[Json], Cell] = {}
            try:
                while todo or running:
                    in_time = time.monotonic() - self.began < self.limits.budget_s
                    while todo and in_time and len(running) < self.limits.jobs:
                        cell = todo.pop(0)
                        running[pool.submit(self._run, cell)] = cell
                    if not running:
                        break
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        cell = running.pop(done)
                        self._keep(cell, done.result(), report, [*todo, *running.values()])
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return todo

    def _run(self, cell: Cell) -> Json:
        """Run one cell, with a limit that follows from the results at its start."""
        seconds = limit(list(self.results), cell, self.limits.within)
        return cell.run(self.data, seconds, self.limits.cell_s, self.program)

    def _keep(
        self,
        cell: Cell,
        result: Json,
        report: Callable[[Json, str], None],
        rest: Sequence[Cell],
    ) -> None:
        settings = cell.settings(self.limits.within)
        kept = self.store.save(cell.name, settings, result)
        self.results.append(kept)
        left = remaining_s(self.results, rest, self.limits.jobs)
        report(kept, f"{len(rest)} cells of this round left, about {as_duration(left)}")
