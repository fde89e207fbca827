"""Hash tables of a probe network, and the time of building them."""

import time
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.simulate.profile.networks import ProbeNetwork


def hashed_state(
    probe: ProbeNetwork, batch: int, number: int, head: NDArray[np.int32]
) -> tuple[Any, Any]:
    """Return the NeuronFinder of `probe`, and the HashedThread of thread `number`."""
    from hogbatch.kernels.cpu.lsh.network import HashedThread
    from hogbatch.kernels.cpu.lsh.selection import scratch

    assert probe.lsh is not None, "only networks with a hashed output layer have hash tables"
    finder, outputs = _finder(probe), probe.network.outputs
    most = min(probe.lsh.most, outputs)
    space = scratch(batch, finder.tables, outputs, most, number)
    place, changed = np.full(outputs, -1, np.int32), np.zeros(outputs, np.uint8)
    return finder, HashedThread(head, space, place, changed)


@lru_cache(maxsize=1)  # the threads and batch sizes of a probe are measured one after the other
def _finder(probe: ProbeNetwork) -> Any:
    """The NeuronFinder of `probe`."""
    return build_tables(probe)[0]


def build_tables(probe: ProbeNetwork) -> tuple[Any, float]:
    """Hash all outputs into new tables; return the NeuronFinder and the seconds this took."""
    from hogbatch.kernels.cpu.lsh.functions import FAMILIES, draw
    from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
    from hogbatch.kernels.cpu.lsh.selection import RULES, NeuronFinder, SelectionRule
    from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
    from hogbatch.kernels.cpu.lsh.tables import clear, empty_tables, insert

    lsh, outputs = probe.lsh, probe.network.outputs
    assert lsh is not None, "only networks with a hashed output layer have hash tables"
    weight = probe.network.tensors()[-2]
    weights = probe.params[weight.offset :][: weight.stored[0] * weight.stored[1]]
    fan_in = probe.network.layers[-1].fan_in
    functions = draw(FAMILIES[lsh.family], fan_in, lsh.hashes, lsh.tables, lsh.bits, lsh.seed)
    sketches = empty_sketches(fan_in, outputs, lsh.seed)
    tables = empty_tables(lsh.tables, lsh.bits, lsh.bucket)
    codes, changed = np.empty((outputs, lsh.tables), np.int32), np.zeros(outputs, np.uint8)
    order = np.random.default_rng(0).permutation(outputs).astype(np.int32)
    seconds = []
    for _ in range(3):  # the first one compiles
        began = time.perf_counter()
        matrix = weights.reshape(weight.stored)
        hash_neurons(functions, sketches, matrix, np.arange(outputs), changed, codes)
        clear(tables, 0, lsh.tables)
        insert(tables, 0, lsh.tables, codes, order, False, 0)
        seconds.append(time.perf_counter() - began)
    rule = SelectionRule(
        RULES[lsh.sampling], lsh.top, lsh.seen, min(lsh.most, outputs), min(lsh.random, outputs)
    )
    return NeuronFinder(rule, functions, tables, sketches), min(seconds)
