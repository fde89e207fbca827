"""A layer as kernels see it: where its parameters are stored, as plain integers.

Derived from the description of the layer (`hogbatch.config.layers`) in one function,
`hogbatch.model.network.layer_view`. Compiled code reads the same fields as the columns of an
int64 table (`hogbatch.kernels.cpu.model`).
"""

from typing import NamedTuple


class LayerView(NamedTuple):
    """One layer in the flat parameters; offsets count floats."""

    weights: int  # offset of weights[fan_in, fan_out]; output-major: weights[fan_out, fan_in]
    bias: int  # offset of bias[fan_out]
    fan_in: int  # stored inputs, K
    fan_out: int  # stored outputs, H
    width: int  # real outputs
    activation: int  # a value of hogbatch.kernels.contract.ACTIVATIONS
    output_major: int = 0  # 1: weights are stored transposed, one row per output
