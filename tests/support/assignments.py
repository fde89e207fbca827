"""Assignments as a coordinator would give them, with arrays of this process."""

import mmap
from dataclasses import replace

import msgspec
import numpy as np

from hogbatch.config.backbone import Backbone
from hogbatch.config.lsh import defaults
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.data.order import epoch_order
from hogbatch.kernels.contract import LOSSES, NO_SCORES, TOTALS
from hogbatch.kernels.executor import Executor
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.model.network import Network
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.wire.messages import Optimizer, Welcome
from hogbatch.workers.compute.assignment import Assignment
from tests.support.executor_runs import scores_of
from tests.support.stored_scores import both_forms

FEATURES, LABELS = 12, 4
NEURONS, WIDE_ROWS = 40, 60  # of an assignment whose outputs are hashed


def to_csr(dense):
    """Return the values of dense[N, F] that are not 0."""
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int64)
    return indptr, columns.astype(np.int32), dense[rows, columns]


def examples(
    rows, *, sparse=False, several=False, features=FEATURES, stored=0.4, seed=0, weighted=False
):
    """Rows whose label, or `several` labels, follow from the signs of some of their sums.

    The numbers are the same whether dense or sparse; a fraction `stored` is not 0, and the last
    feature always is 0.
    """
    random = np.random.default_rng(seed)
    dense = random.normal(size=(rows, features)).astype(np.float32)
    dense[random.random(dense.shape) > stored] = 0
    dense[:, -1] = 0
    present = dense @ np.random.default_rng(1).normal(size=(features, LABELS)) > 0
    if several:
        labels = multi_labels(*to_csr(present)[:2])
    else:
        labels = single_labels(present[:, 0].astype(np.float32))
    if weighted:
        labels = labels._replace(weights=(1 + np.arange(rows, dtype=np.float32) % 3) / 2)
    inputs = csr_inputs(*to_csr(dense)) if sparse else dense_inputs(dense)
    return Examples(inputs, labels, features)


def assignment(train, test=None, *, hidden=(8,), optimizer="sgd", l2=0.0, **fields):
    """An assignment to train on `train`; `fields` are further fields of its Welcome.

    Its rows cannot be written, as in a worker, so that both use the same compiled kernels.
    """
    train, test = train.read_only(), test and test.read_only()
    several = len(train.labels.indptr) > 0
    loss, outputs = ("multilabel", LABELS) if several else ("logistic", 1)
    backbone = fields.get("backbone") and Backbone.parse(fields["backbone"])
    network = Network.build(train.features, hidden, outputs, "tanh", loss, backbone=backbone)
    spec = OPTIMIZERS[optimizer]
    welcome = Welcome(
        **{
            "name": "gpu-0",
            "layers": network.layers,
            "loss": loss,
            "optimizer": Optimizer(optimizer, l2, spec.momentum, spec.beta2, spec.epsilon),
            "merge": "delta",
            "merge_every": 1,
            "staleness_damping": "off",
            "precision": "float32",
            **fields,
        }
    )
    orders = EpochOrders(*(epoch_order(train.rows, 0, epoch) for epoch in range(2)))
    model = shared_model(network.parameters, spec.slots)
    network.initialise(model.params, seed=0)
    sets = {"train": train} if test is None else {"train": train, "test": test}
    scores = NO_SCORES if test is None else both_forms(test.rows, outputs)[0]
    fence = np.zeros(8, np.int64)
    return Assignment(welcome, network, sets, orders, model, fence, scores=scores)


def wide(*, sparse=False, hidden=(8,), optimizer="adam", **settings):
    """An assignment with hashed outputs and these settings, by default built in the foreground."""
    train = examples(WIDE_ROWS, sparse=sparse, several=True)
    given = assignment(train, train, hidden=hidden, optimizer=optimizer)
    network = Network.build(
        train.features, hidden, NEURONS, "relu", "multilabel-softmax", output_major=True
    )
    lsh = msgspec.structs.replace(
        defaults("dwta", NEURONS, 0),
        **{"rehash": 4, "growth": 1.0, "rebuild": 1000, "background": False, **settings},
    )
    model = shared_model(network.parameters, OPTIMIZERS[optimizer].slots)
    network.initialise(model.params, seed=0)
    welcome = msgspec.structs.replace(
        given.welcome, layers=network.layers, loss=network.loss, lsh=lsh
    )
    scores = both_forms(WIDE_ROWS, NEURONS)[1]
    return replace(given, network=network, model=model, welcome=welcome, scores=scores)


def evaluated(given):
    """The sums over the test set, directly from the shared parameters."""
    totals, none, test = np.zeros(TOTALS), np.zeros(0, np.float32), given.sets["test"]
    layers, loss = given.network.layer_views(), LOSSES[given.network.loss]
    executor = Executor(NUMPY_KERNELS, np, layers, given.model.params, none, none)
    executor.evaluate_batch(test.inputs, test.labels, np.arange(test.rows), loss, totals)
    return totals


def evaluated_scores(given):
    """The scores of the test set, directly from the shared parameters."""
    none, layers = np.zeros(0, np.float32), given.network.layer_views()
    test = given.sets["test"]
    executor = Executor(NUMPY_KERNELS, np, layers, given.model.params, none, none)
    return scores_of(executor, test.inputs, np.arange(test.rows))


def shared_model(parameters, slots=0):
    """An untrained model of zeros, in pages of its own as in a segment."""
    layout = arrange(SharedModel.fields(parameters, slots))
    memory = np.frombuffer(mmap.mmap(-1, layout.size), np.uint8)
    return SharedModel(
        *(memory[f.offset : f.end].view(f.dtype).reshape(f.shape) for f in layout.fields)
    )
