"""The sizes of a training problem on which the cost of a batch depends."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hogbatch.config.backbone_layers import BackboneLayer
from hogbatch.config.lsh import Lsh
from hogbatch.data.batch import Examples
from hogbatch.kernels.layers import LayerView
from hogbatch.model.network import Network

BINS_PER_FACTOR = 4  # bins of the frequencies of features, per factor of two


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes of a network and of its training rows."""

    layers: tuple[LayerView, ...]
    backbone: tuple[BackboneLayer, ...]  # below `layers`
    features: int  # inputs, without padding
    sparse: bool
    stored: float  # values per row; of dense rows, the features
    labels: float  # per row
    rows: int  # of the training set
    slots: int  # optimizer slots per parameter
    may_densify: bool  # whether a GPU may convert sparse rows to dense rows
    lsh: Lsh | None  # of a hashed output layer
    exchanged_slots: int  # of a sparse first layer, which GPU workers exchange with its weights
    frequencies: tuple[tuple[float, float], ...]  # (features, fraction of rows with each), sorted

    @classmethod
    def of(
        cls,
        network: Network,
        train: Examples,
        slots: int,
        lsh: Lsh | None,
        *,
        may_densify: bool = True,
        exchanges_sums: bool = False,
    ) -> "Workload":
        """Return the sizes of `network` and `train`.

        `may_densify` is whether the optimizer ignores features that a batch does not have: SGD and
        Adagrad without weight decay do. `exchanges_sums` is whether GPU workers exchange the slots
        of a sparse first layer: those of Adagrad, with an additive merge rule.
        """
        stored = len(train.inputs.indices) / train.rows if train.sparse else float(train.features)
        lists = len(train.labels.indptr) > 0
        return cls(
            layers=network.layer_views(),
            backbone=network.backbone.layers if network.backbone else (),
            features=train.features,
            sparse=train.sparse,
            stored=stored,
            labels=len(train.labels.indices) / train.rows if lists else 1.0,
            rows=train.rows,
            slots=slots,
            may_densify=train.sparse and may_densify and stored >= 0.01 * train.features,
            lsh=lsh,
            exchanged_slots=int(exchanges_sums and train.sparse),
            frequencies=_frequencies(train) if train.sparse else (),
        )

    @property
    def parameters(self) -> int:
        dense = sum(weights(layer) + layer.fan_out for layer in self.layers)
        return dense + sum(map(parameters, self.backbone))

    def touched(self, rows: int, most: float = math.inf) -> float:
        """Expected number of features, of the `most` frequent ones, in `rows` random rows."""
        features = self._most_frequent(most)
        return sum(count * -math.expm1(rows * math.log1p(-p)) for count, p in features)

    def touched_by_others(self, rows: int, threads: int, most: float = math.inf) -> float:
        """Expected number of the touched features that another thread has written last.

        All of `threads` threads train on batches of `rows` rows. A feature that a batch has with
        probability q was last touched by one of the others with probability
        1 - q r^(threads - 1) / (1 - r^threads), where r = 1 - q.
        """
        if threads < 2:
            return 0.0
        total = 0.0
        for count, p in self._most_frequent(most):
            q = -math.expm1(rows * math.log1p(-p))
            own = q * (1 - q) ** (threads - 1) / (1 - (1 - q) ** threads)
            total += count * q * (1 - own)
        return total

    def _most_frequent(self, most: float) -> Iterator[tuple[float, float]]:
        """The bins of the `most` frequent features."""
        for count, p in self.frequencies:
            if most <= 0:
                return
            yield min(count, most), p
            most -= count


def weights(layer: LayerView) -> int:
    return layer.fan_in * layer.fan_out


def parameters(layer: BackboneLayer) -> int:
    return sum(math.prod(shape) for shape in layer.tensors().values())


def _frequencies(train: Examples) -> tuple[tuple[float, float], ...]:
    """Group features by the fraction of rows that have them, in logarithmic bins."""
    counts = np.bincount(train.inputs.indices, minlength=train.features)
    present = counts[counts > 0]
    fractions = np.minimum(present / train.rows, 1 - 1e-9)
    bins = np.round(np.log2(fractions) * BINS_PER_FACTOR).astype(np.int64)
    groups = [fractions[bins == each] for each in np.unique(bins)[::-1]]
    return tuple((float(len(group)), float(group.mean())) for group in groups)
