"""A batch on the device."""

from typing import Any, NamedTuple

from hogbatch.data.batch import Inputs, Labels


class Batch(NamedTuple):
    """A batch on the device: `rows`[B] of `inputs` and `labels`, and their `numbers`[B] in the set.

    Batches with the same `slot` use the same arrays with different contents.
    """

    slot: int
    inputs: Inputs
    labels: Labels
    rows: Any
    numbers: Any
