"""The scores of networks of dense layers, by the compiled kernels of training on all cores."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from hogbatch.data.batch import Inputs, count, read_only
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.model import ModelView, layer_table
from hogbatch.kernels.cpu.scores import store_scores_of
from hogbatch.machine.threads import on_all_cores
from hogbatch.model.network import Network

NONE = np.empty(0, np.float32)


class CompiledNetwork:
    """A network whose last layer is not output-major. `tensors` are as in `Model`."""

    def __init__(self, network: Network, tensors: Mapping[str, Floats]) -> None:
        params = np.zeros(network.parameters, np.float32)
        for name, tensor in network.from_stored(params).items():
            tensor[:] = tensors[name]
        table, steps = layer_table(network.layer_views()), np.zeros(1, np.int64)
        self._outputs = network.outputs
        self._model = ModelView(table, params, NONE, NONE, steps, NONE, NONE)

    def __call__(self, rows: Inputs) -> Iterator[tuple[int, Floats]]:
        """Yield the scores [N, C] of scaled rows, as the block of outputs from 0 on."""
        scores = np.empty((count(rows), self._outputs), np.float32)
        inputs = Inputs(*map(read_only, rows))
        on_all_cores(partial(store_scores_of, self._model, inputs, scores), len(scores))
        yield 0, scores
