"""Builds of hash tables of a rehearsed CPU worker; see `hogbatch.workers.hashed`.

A build reads the weights at its start, and its tables are used when its simulated time has passed.
"""

from collections.abc import Callable

from hogbatch.kernels.cpu.lsh.selection import NeuronFinder
from hogbatch.simulate.hardware.cpu_cost import mean_found
from hogbatch.simulate.rehearsal.concurrent_model import Thread
from hogbatch.workers.compute.assignment import Assignment
from hogbatch.workers.compute.hash_tables import HashTables

# Runs for that many simulated seconds of a core, then calls the function.
Run = Callable[[float, Callable[[], object]], None]


class RehearsedTables:
    """The hash tables of one worker, which are built in the background.

    `run` runs the thread that builds them; `seconds` returns the time of a build that hashes a
    number of outputs (`CpuCost.rebuild_seconds`).
    """

    def __init__(self, assignment: Assignment, run: Run, seconds: Callable[[int], float]) -> None:
        self.tables = HashTables(assignment)
        self._run, self._seconds = run, seconds
        self._due = self._building = False
        self.found = 0.0  # outputs in the buckets of a row, on average

    def build_now(self) -> float:
        """Build tables while no thread uses them; return the seconds that one thread takes."""
        built, seconds = self._built()
        self._swap(built)
        return seconds

    def enter(self, thread: Thread) -> None:
        """Let `thread` use the current tables until `leave`, for one range of a lease."""
        thread.pinned = self.tables.enter()

    def leave(self, thread: Thread) -> None:
        """End the use of the tables that began with `enter`."""
        if thread.pinned is not None:
            self.tables.leave(thread.pinned)
            thread.pinned = None
            self._build_if_possible()

    def begin(self) -> None:
        self.tables.begin(1)

    def end(self, updates: int) -> None:
        """Count the `updates` of a batch that ends, 0 or 1."""
        if self.tables.end(1, updates):
            self._rebuild()

    def reset(self, rollbacks: int) -> None:
        """Hash all outputs again after roll-back number `rollbacks`.

        Every thread may call this; only the first call for a roll-back has an effect.
        """
        if self.tables.reset(rollbacks):
            self._rebuild()

    def _rebuild(self) -> None:
        self._due = True
        self._build_if_possible()

    def _built(self) -> tuple[NeuronFinder, float]:
        """Build the other set; return it, and the seconds that one thread takes."""
        parts: list[int] = []  # the first one is the number of outputs that are hashed

        def run_whole(function: Callable[[int, int], None], count: int) -> None:
            parts.append(count)
            function(0, count)

        built = self.tables.build(self.tables.plan(), run_whole)
        return built, self._seconds(parts[0])

    def _swap(self, built: NeuronFinder) -> None:
        self.tables.swap(built)
        self.found = mean_found(built.tables.counts, built.tables.buckets.shape[2])

    def _build_if_possible(self) -> None:
        """Start a build that is due, if no thread uses the tables that it fills."""
        if not self._due or self._building or not self.tables.may_build:
            return
        self._due, self._building = False, True
        built, seconds = self._built()

        def swap() -> None:
            self._swap(built)
            self._building = False
            self._build_if_possible()

        self._run(seconds, swap)
