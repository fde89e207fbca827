"""When the stages of a recorded batch ran: at times in proportion to their work."""

from itertools import accumulate, pairwise

from hogbatch.config.lsh import Lsh
from hogbatch.data.batch import Examples
from hogbatch.model.network import Network


def middles(network: Network, train: Examples, lsh: Lsh | None = None) -> list[float]:
    """The middle of each stage of a batch (see `kernels.cpu.staged`), as a fraction of its time.

    The work of a pass is its multiplications: the backward pass has twice as many as the forward
    pass, but for the first layer, which passes no gradient down. Of a layer with hash tables
    (`lsh`), the outputs that they may find are computed, twice in the forward pass; see
    `kernels.cpu.lsh.staged`.
    """
    stored = len(train.inputs.indices) / train.rows if train.sparse else train.features
    layers = network.layer_views()
    up = [layer.fan_out * (layer.fan_in if index else stored) for index, layer in enumerate(layers)]
    down = [work * (2 if index else 1) for index, work in enumerate(up)]
    if lsh is not None:
        active = min(layers[-1].width, lsh.most + lsh.random) * layers[-1].fan_in
        up[-1], down[-1] = 2 * active, active
    ends = list(accumulate([*up, *reversed(down)], initial=0.0))
    return [(a + b) / 2 / ends[-1] for a, b in pairwise(ends)]
