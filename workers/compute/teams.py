"""Division of the threads of a CPU worker into teams, and of rows among these.

The threads of a team compute each batch together (`hogbatch.kernels.cpu.team`); teams update the
shared model without locks, like single threads. Every thread that trains on its own makes the
others' changes staler: on dense networks, the rows that 16 Hogwild threads need to a target grow
so much that they are no faster than one (docs/rehearsal-matrix.md). A sparse first layer is
different: batches that touch different features do not disturb each other.
"""

from dataclasses import dataclass
from itertools import pairwise

from hogbatch.data.batch import Examples
from hogbatch.kernels.layers import LayerView


@dataclass(frozen=True, slots=True)
class Teams:
    """The teams of a worker."""

    count: int  # batches that are computed at the same time
    members: int  # threads of each team

    @property
    def threads(self) -> int:
        return self.count * self.members


def divide(wanted: int, threads: int, cores: int, *, together: bool) -> Teams:
    """Divide `threads` threads into `wanted` teams; 0: automatically.

    `cores` is the number of physical cores to which the threads are pinned; 0: they are not pinned.
    `together`: whether a batch is computed by several threads; see `gains_from_teams`. Without it,
    each thread is a team of its own.

    Automatically, threads without cores of their own stay on their own, because all members of a
    team would wait for one that has no core. Otherwise there is one team, with a thread on each
    core: a second thread on a core would compute no faster. If the threads cannot be divided
    evenly, some of them are not used.
    """
    if not together:
        return Teams(threads, 1)
    if wanted > 0:
        count = min(wanted, threads)
        return Teams(count, threads // count)
    if cores == 0:
        return Teams(threads, 1)
    return Teams(1, min(threads, cores))


def cut(rows: int, batch_size: int, parts: int) -> list[tuple[int, int]]:
    """Divide [0, rows) into at most `parts` ranges of whole batches, of which the last one may be
    incomplete.
    """
    batches = -(-rows // batch_size)
    edges = [min(rows, batches * part // parts * batch_size) for part in range(parts + 1)]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def computes_together(
    wanted: int, loop: str, layers: tuple[LayerView, ...], train: Examples
) -> bool:
    """Whether several threads compute a batch of `train`, for `divide`.

    `loop` is the name of the loop for single threads (`hogbatch.kernels.cpu.loops`); only networks
    of the dense loop have one for teams. If the user wants a number of teams, that decides.
    """
    if loop != "dense" or wanted > 0:
        return loop == "dense"
    stored = len(train.inputs.indices) / max(1, train.rows)
    return gains_from_teams(layers, stored, sparse=train.sparse)


def gains_from_teams(layers: tuple[LayerView, ...], stored: float, *, sparse: bool) -> bool:
    """Whether most of the multiplications of a row are those of dense layers.

    `stored` is the mean number of stored values in a row of a sparse input.
    """
    dense = sum(layer.fan_in * layer.fan_out for layer in layers[1 if sparse else 0 :])
    return not sparse or dense >= stored * layers[0].fan_out
