"""Label vectors of a trained model: built from the training rows, weighted by validation rows."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.metrics import CUTOFFS
from hogbatch.data.batch import Examples, Labels, multi_labels
from hogbatch.data.csr import rows_of
from hogbatch.events.event import Tested
from hogbatch.kernels.blocks import between, softmax_losses
from hogbatch.machine.linux import read_topology
from hogbatch.model.label_vectors import VALUES, LabelVectors, factors
from hogbatch.model.metrics import Scored, measure
from hogbatch.model.ranking import Ranking
from hogbatch.model.trained import Floats, Model
from hogbatch.run.components import RunComponents
from hogbatch.store.scan import first_not_finite

Setting = tuple[float, float]  # weight and exponent

NONE: Final = 0.0, 0.0  # no label vectors
WEIGHTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
EXPONENTS: Final = (0.0, 0.125, 0.25, 0.375)
GRID: Final = (NONE, *((weight, exponent) for exponent in EXPONENTS for weight in WEIGHTS))
DEFAULT: Final = 8.0, 0.25  # without validation rows
LABELS: Final = 1 << 12  # whose vectors are built at a time


class Measured(NamedTuple):
    """The results of a model with label vectors on a set of rows."""

    setting: Setting
    loss: float
    values: dict[str, float]  # all metrics
    alone: dict[str, float]  # those of the label vectors alone


def with_label_vectors(model: Model, components: RunComponents) -> Model:
    """`model` with label vectors, whose results replace those of the network in the recorder.

    `model` itself if its parameters are not finite, or if the validation metric is best without.
    """
    recorder, setup = components.recorder, components.setup
    if first_not_finite(recorder.params) is not None:
        return model
    components.console.busy("adding label vectors")
    train, known, given = setup.loaded.train, recorder.results, setup.config.label_vectors
    lists = label_lists(train.labels)
    frequencies = np.bincount(lists.indices, minlength=model.network.outputs)
    vectors = build(train, lists, model.network.outputs)
    settings: Sequence[Setting] = GRID if "validation" in known else [DEFAULT]
    if ":" in given:
        weight, exponent = map(float, given.split(":"))
        settings = [(weight, exponent)]
    branches: dict[str, object] = {}
    for name, (_, network) in known.items():  # the validation rows are first, and choose
        found = measure_best(model, vectors, frequencies, settings, setup.loaded.sets[name])
        settings, metric = [found.setting], next(iter(network))
        values = {metric: found.values[metric], **found.values}
        branches[name] = {
            "metric": metric,
            "network": network[metric],
            "label_vectors": found.alone[metric],
            "both": values[metric],
        }
        if found.setting == NONE:
            continue
        if name == "test":
            recorder.record(Tested(found.loss, values))
        elif recorder.kept is not None:
            kept = recorder.kept
            recorder.kept = replace(kept, validation_loss=found.loss, validation_values=values)
    weight, exponent = settings[0]
    recorder.label_vectors = {"weight": weight, "exponent": exponent, **branches}
    if weight == 0:
        return model
    return replace(model, label_vectors=vectors.times(factors(weight, exponent, frequencies)))


def label_lists(labels: Labels) -> Labels:
    """The labels as lists, of one label each if there is one per row."""
    if len(labels.indptr):
        return labels
    return multi_labels(np.arange(len(labels.values) + 1), labels.values.astype(np.int32))


def build(train: Examples, lists: Labels, outputs: int) -> LabelVectors:
    """The vectors of all labels, each with its VALUES largest values; computed by all cores."""
    from hogbatch.kernels.cpu import label_vectors as kernels

    inputs = train.inputs
    owners = rows_of(lists.indptr)[np.argsort(lists.indices, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(lists.indices, minlength=outputs))))
    squares = np.square(inputs.values, dtype=np.float64)
    sizes = np.sqrt(np.bincount(rows_of(inputs.indptr), squares, train.rows))
    sizes *= np.sqrt(np.diff(lists.indptr))
    shares = (1 / np.where(sizes > 0, sizes, 1)).astype(np.float32)

    def part(first: int) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        labels = np.arange(first, min(first + LABELS, outputs), dtype=np.int32)
        features = np.empty((len(labels), VALUES), np.int32)
        values, used = np.empty(features.shape, np.float32), np.empty(len(labels), np.int64)
        given = inputs, train.features, starts, owners, shares, first
        kernels.build(*given, features, values, used)
        stored = np.arange(VALUES) < used[:, np.newaxis]
        return features[stored], np.repeat(labels, used), values[stored]

    with ThreadPoolExecutor(read_topology().threads) as pool:
        parts = list(pool.map(part, range(0, outputs, LABELS)))
    features, labels, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(features, kind="stable")  # by feature, and then by label
    counts = np.bincount(features, minlength=train.features)
    return LabelVectors(np.concatenate(([0], np.cumsum(counts))), labels[order], values[order])


def measure_best(
    model: Model,
    vectors: LabelVectors,
    frequencies: NDArray[np.int64],
    settings: Sequence[Setting],
    rows: Examples,
) -> Measured:
    """Measure the one of `settings` with the best metric of `rows`; of equal ones, the first."""
    exponents = sorted({exponent for _, exponent in settings})
    powers = np.array([factors(1.0, exponent, frequencies) for exponent in exponents])
    sums = [(1.0, weight, exponents.index(exponent)) for weight, exponent in settings]
    sums += [(0.0, 1.0, power) for power in range(len(exponents))]
    best, losses = _ranked(model, vectors, np.array(sums, np.float32), powers, rows)
    scored = [
        Scored(model.loss, rows.labels, None, best[:, s], model.frequencies)
        for s in range(len(sums))
    ]
    main = model.loss.metrics[0]
    values = [measure(each, main)[main] for each in scored[: len(settings)]]
    chosen = int(np.argmax(values))
    alone = scored[len(settings) + exponents.index(settings[chosen][1])]
    loss = scored[chosen].mean(losses[:, chosen])
    return Measured(settings[chosen], loss, _defined(scored[chosen]), _defined(alone))


def _defined(rows: Scored) -> dict[str, float]:
    return {name: value for name, value in measure(rows).items() if np.isfinite(value)}


def _ranked(
    model: Model, vectors: LabelVectors, sums: Floats, powers: Floats, rows: Examples
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The best labels [N, S, k] of rows by each of S sums, and the losses [N, S]."""
    lists, k = label_lists(rows.labels), min(max(CUTOFFS), model.network.outputs)
    ranking = Ranking(model.network_scores, vectors, sums, powers, rows.rows)
    best = np.empty((rows.rows, len(sums), k), np.int32)
    losses = np.empty((rows.rows, len(sums)))
    for start in range(0, rows.rows, ranking.rows):
        block = slice(start, start + ranking.rows)
        part: Any = between(rows.inputs, block.start, block.stop)
        own = lists.indptr[start : block.stop + 1], lists.indices
        best[block], highest, totals, true = ranking(part, own, k)
        counts = np.diff(own[0])[:, np.newaxis]
        losses[block] = softmax_losses(totals, highest[:, :, 0], true, counts)
    return best, losses
