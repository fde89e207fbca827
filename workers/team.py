"""The threads of a team, which compute each batch together (`hogbatch.kernels.cpu.team`).

The first member is the thread that takes the leases. The other members sleep until it calls them.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.kernels.contract import TOTALS, RowScores, add_totals
from hogbatch.kernels.cpu import team as compiled
from hogbatch.kernels.cpu.barrier import abandon, new_barrier, own_lines
from hogbatch.kernels.cpu.dense import aligned
from hogbatch.kernels.cpu.loops import CompiledLoop
from hogbatch.kernels.cpu.network import layer_starts
from hogbatch.machine.process import pin
from hogbatch.machine.topology import Cores
from hogbatch.workers.compute.teams import cut

Part = Callable[[int], None]  # called with the number of a member


class ThreadTeam:
    """A team of `members` threads; the one that calls `train` and `evaluate` is member 0.

    `loop` is the dense loop of single threads. The other members are pinned to cores[1:], if given.
    `train` and `evaluate` have the arguments of those of `loop`.
    """

    def __init__(self, loop: CompiledLoop, members: int, cores: Cores = ()) -> None:
        self._loop, self._members = loop, members
        self._totals = np.zeros((members, TOTALS))
        self._heads: list[NDArray[np.int32]] = []  # `Links.head` of the other members
        self._rows = 0  # of the largest batch for which there is memory
        nothing = aligned(0)
        self._team = compiled.Team(members, new_barrier(), own_lines(1), nothing, nothing)
        self._calls = [queue.SimpleQueue[Part]() for _ in range(members - 1)]
        self._ended = queue.SimpleQueue[BaseException | None]()
        for number in range(1, members):
            core = cores[number] if cores else None
            threading.Thread(target=self._serve, args=(number, core), daemon=True).start()

    @property
    def as_loop(self) -> CompiledLoop:
        """This team in place of the loop of a single thread."""
        return self._loop._replace(train=self.train, evaluate=self.evaluate)

    def train(
        self,
        model: Any,
        inputs: Any,
        labels: Any,
        rows: NDArray[np.int64],
        lease: Any,
        hyper: Any,
        head: NDArray[np.int32],
        fence: NDArray[np.int64],
        totals: NDArray[np.float64],
    ) -> None:
        """Train on `rows` and add to `totals`; lease.batch_size is that of the whole team."""
        self._allocate(model.table, len(inputs.indptr) > 0, min(lease.batch_size, len(rows)))
        if not self._heads:
            self._heads = [np.full(len(head), -1, np.int32) for _ in self._calls]
        heads = [head, *self._heads]
        given = model, inputs, labels, rows, lease, hyper

        def part(member: int) -> None:
            own = heads[member], fence, self._totals[member], self._team, member
            compiled.train(*given, *own)

        self._run(part, totals)

    def evaluate(
        self,
        model: Any,
        inputs: Any,
        labels: Any,
        rows: NDArray[np.int64],
        lease: Any,
        fence: NDArray[np.int64],
        totals: NDArray[np.float64],
        stored: RowScores,
    ) -> None:
        """Add the losses and metrics of `rows` to `totals`, and store their scores.

        Each member evaluates some of the batches.
        """
        ranges = cut(len(rows), lease.batch_size, self._members)

        def part(member: int) -> None:
            if member < len(ranges):
                own = rows[slice(*ranges[member])]
                sums = self._totals[member]
                self._loop.evaluate(model, inputs, labels, own, lease, fence, sums, stored)

        self._run(part, totals)

    def _run(self, part: Part, totals: NDArray[np.float64]) -> None:
        """Call part(member) on each member, and add what they have added up to `totals`.

        If members raise exceptions, one of these is raised when all calls have ended.
        """
        self._totals[:] = 0.0
        for calls in self._calls:
            calls.put(part)
        ended = [self._attempt(part, 0), *(self._ended.get() for _ in self._calls)]
        for error in ended:
            if error is not None:
                raise error
        for each in self._totals:
            add_totals(each, totals)

    def _serve(self, member: int, core: int | None) -> None:
        if core is not None:
            pin(core)
        while True:
            self._ended.put(self._attempt(self._calls[member - 1].get(), member))

    def _attempt(self, part: Part, member: int) -> BaseException | None:
        """Call `part`; return its exception, after which no other member waits for this one."""
        try:
            part(member)
        except BaseException as error:
            abandon(self._team.barrier)
            return error
        return None

    def _allocate(self, table: NDArray[np.int64], sparse: bool, rows: int) -> None:
        """Allocate the memory that members share, for batches of up to `rows` rows."""
        if rows > self._rows:
            size = layer_starts(table, sparse, rows)[-1]
            self._team = self._team._replace(activations=aligned(size), grads=aligned(size))
            self._rows = rows
