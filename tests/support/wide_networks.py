"""Networks with an output-major last layer, of which hash tables find the active outputs."""

import numpy as np

from hogbatch.kernels.contract import TOTALS
from hogbatch.kernels.cpu.lsh import network as hashed
from hogbatch.kernels.cpu.lsh.functions import SIMHASH, draw
from hogbatch.kernels.cpu.lsh.selection import NeuronFinder, SelectionRule, scratch
from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
from hogbatch.kernels.cpu.lsh.tables import empty_tables, insert
from hogbatch.model.network import Network
from tests.support import compiled_networks
from tests.support.compiled_networks import FEATURES
from tests.support.stored import to_stored

CLASSES, SET = 43, 30  # 43 is stored as 48
BATCH, RAGGED = 7, 4
WIDE_LOSSES = ("softmax", "multilabel-softmax", "multilabel")
HIDDEN = [(18,), (20, 33)]
ALL = SelectionRule(CLASSES, CLASSES, 0)


def finder_of(dimension, classes, rule=ALL, found=None, family=SIMHASH, seed=0):
    """A finder with `found` (default: all outputs) in every bucket of its three tables."""
    functions = draw(family, dimension, 2, 3, 2, seed)
    tables, found = empty_tables(3, 2, classes), np.arange(classes) if found is None else found
    for code in range(4):
        codes = np.full((classes, 3), code, np.int32)
        insert(tables, 0, 3, codes, np.array(found, np.int32))
    return NeuronFinder(rule, functions, tables, empty_sketches(dimension, classes, seed))


class WideCase(compiled_networks.Case):
    """A case of the wide loop."""

    def __init__(
        self,
        loss="multilabel-softmax",
        optimizer="sgd",
        *,
        sparse=False,
        hidden=(18,),
        classes=CLASSES,
        rows=SET,
        dropout=None,
    ):
        sizes = {"outputs": classes, "rows": rows, "batch": BATCH, "leased": 2 * BATCH + RAGGED}
        super().__init__(
            loss,
            optimizer,
            sparse=sparse,
            hidden=hidden,
            output_major=True,
            dropout=dropout,
            **sizes,
        )

    def labels_of(self, rows):
        """The distinct labels of `rows`, ascending."""
        if not len(self.labels.indptr):
            return np.unique(self.labels.values[rows]).astype(int)
        starts, stops = self.labels.indptr[rows], self.labels.indptr[rows + 1]
        spans = [self.labels.indices[a:b] for a, b in zip(starts, stops, strict=True)]
        return np.unique(np.concatenate(spans)).astype(int)

    def cut(self, neurons):
        """A case reduced to the outputs `neurons`, ascending; other outputs' labels are removed."""
        small = WideCase.__new__(WideCase)
        small.__dict__ |= self.__dict__
        small.network = Network.build(
            *(FEATURES, tuple(layer.width for layer in self.network.layers[:-1]), len(neurons)),
            *(self.network.layers[0].activation, self.network.loss, True),
        )
        small.classes = len(neurons)
        small.params = self._cut(self.params, small.network, neurons)
        small.slots = [self._cut(slot, small.network, neurons) for slot in self.slots]
        small.labels, small.totals = self._renamed(neurons), np.zeros(TOTALS)
        return small

    def _cut(self, flat, network, neurons):
        if not flat.size:
            return flat.copy()
        tensors = self.network.from_stored(flat)
        last = len(network.layers) - 1
        for name in (f"layers.{last}.weight", f"layers.{last}.bias"):
            tensors[name] = tensors[name][neurons]
        params = np.zeros(network.parameters, np.float32)
        to_stored(network, tensors, params)
        return params

    def _renamed(self, neurons):
        place = np.full(self.classes, -1)
        place[neurons] = np.arange(len(neurons))
        labels = self.labels
        if not len(labels.indptr):
            return labels._replace(values=place[labels.values.astype(int)].astype(np.float32))
        kept = place[labels.indices] >= 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[labels.indptr]
        indices = place[labels.indices[kept]].astype(np.int32)
        return labels._replace(indptr=indptr.astype(np.int64), indices=indices)


class HashedCase(WideCase):
    """A case of the hashed loop."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.place = np.full(self.classes, -1, np.int32)
        self.changed = np.zeros(self.classes, np.uint8)

    def train(self, finder=None, *, batch=None, threads=1, own=None, fence=None):
        """Train on the outputs that `finder` finds: by default all."""
        finder = finder or finder_of(self.dimension, self.classes)
        space = scratch(batch or BATCH, finder.tables, self.classes, finder.rule.capacity, 1)
        seat = hashed.HashedThread(self.head, space, self.place, self.changed)
        lease, fence = self.lease(batch, threads), self.fence if fence is None else fence
        arguments = self.model(own), finder, *self.rows, self.order, lease, self.hyper
        hashed.train(*arguments, seat, fence, self.totals)
        assert (self.place == -1).all() and (self.head == -1).all()
        assert not space.is_found.any()
        return self
