"""Label vectors and nearest rows of a trained model, weighted by validation rows."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch.config.metrics import CUTOFFS
from hogbatch.config.train import TrainConfig
from hogbatch.data import csr
from hogbatch.data.batch import Examples, Labels, multi_labels
from hogbatch.data.folds import rows_of
from hogbatch.events.event import Tested
from hogbatch.kernels.blocks import between, softmax_losses
from hogbatch.kernels.contract import Floats
from hogbatch.machine.linux import read_topology
from hogbatch.model.inputs import label_lists
from hogbatch.model.label_vectors import VALUES, LabelVectors, NearestRows, factors
from hogbatch.model.metrics import Scored, measure
from hogbatch.model.ranking import Ranking
from hogbatch.model.temperature import softmax_temperature
from hogbatch.model.trained import Model
from hogbatch.run.components import RunComponents
from hogbatch.run.planning import has_nearest_rows
from hogbatch.store.layout import chunks
from hogbatch.store.scan import first_not_finite


class Setting(NamedTuple):
    """What is added to the scores of a network."""

    weight: float  # of label vectors
    exponent: float
    rows: float = 0.0  # weight of nearest rows

    def divided(self, temperature: float) -> "Setting":
        """The setting for a network whose scores are divided by `temperature`, too."""
        return Setting(self.weight / temperature, self.exponent, self.rows / temperature)


NONE: Final = Setting(0.0, 0.0)
WEIGHTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
EXPONENTS: Final = (0.0, 0.125, 0.25, 0.375)
# With nearest rows: their weights, and factors of the weight of label vectors.
ROWS: Final = (1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
SHARES: Final = (1.0, 0.5)
DEFAULT: Final = Setting(8.0, 0.25, 16.0)  # without validation rows
LABELS: Final = 1 << 12  # whose vectors are built at a time
MAX_RANKED: Final = 1 << 29  # scores of the rows that choose a setting
MAX_SCORES: Final = 1 << 23  # of those that determine the temperature, 32 MiB


class Sources(NamedTuple):
    """Scores that may be added to those of a network."""

    vectors: LabelVectors
    nearest: NearestRows | None
    frequencies: NDArray[np.int64]  # training rows with each label

    def added_to(self, model: Model, setting: Setting) -> Model:
        """`model` with the scores of `setting`."""
        weight, exponent, rows = setting
        if not weight:
            return model
        vectors = self.vectors.times(factors(weight, exponent, self.frequencies))
        nearest = self.nearest.times(rows) if self.nearest and rows else None
        return replace(model, label_vectors=vectors, nearest_rows=nearest)


class Measured(NamedTuple):
    """The results of a model with a setting on a set of rows."""

    setting: Setting
    loss: float
    values: dict[str, float]  # all metrics
    alone: dict[str, float]  # the first metric of label vectors, and of nearest rows, alone


def with_label_vectors(model: Model, components: RunComponents) -> Model:
    """`model` with label vectors, and nearest rows, whose results replace those in the recorder.

    `model` itself if its parameters are not finite, or if the validation metric is best without.
    """
    recorder, setup = components.recorder, components.setup
    if first_not_finite(recorder.params) is not None:
        return model
    components.console.busy("adding label vectors")
    nearest = has_nearest_rows(setup.config, setup.data)
    sources = build_sources(setup.loaded.train, model.network.outputs, nearest)
    known, sets = recorder.results, setup.loaded.sets
    held_out = sets["validation"] if "validation" in known else None
    weights, temperature = decide(model, sources, setup.config, held_out)
    model, setting = divided(model, temperature), weights.divided(temperature)
    branches: dict[str, object] = {}
    for name, (_, network) in known.items():
        rows, metric = sets[name], next(iter(network))
        found = measure_best(model, sources, [setting], rows)
        values = {metric: found.values[metric], **found.values}
        alone = {"network": network[metric], **found.alone}
        branches[name] = {"metric": metric, **alone, "all": values[metric]}
        if setting == NONE:
            continue
        if name == "test":
            recorder.record(Tested(found.loss, values))
        elif recorder.kept is not None:
            measured = {"validation_loss": found.loss, "validation_values": values}
            recorder.kept = structs.replace(recorder.kept, **measured)
    recorder.label_vectors = {**weights._asdict(), "temperature": temperature, **branches}
    if setting.rows:
        components.console.say(
            "the model file will contain the training rows; --nearest-rows off leaves them out"
        )
    return sources.added_to(model, setting)


def decide(
    model: Model, sources: Sources, config: TrainConfig, held_out: Examples | None
) -> tuple[Setting, float]:
    """The setting and the temperature of a model: the user's, or by validation rows."""
    given = config.label_vectors.split(":")[2:]
    temperature = float(given[0]) if given else 1.0
    if held_out is None:
        return fixed(config, sources), temperature
    weights = choose(model, sources, config, sample(held_out, MAX_RANKED, model))
    if weights.weight and not given and not model.others:
        some = sample(held_out, MAX_SCORES, model)
        temperature = temperature_of(sources.added_to(model, weights), some)
    return weights, temperature


def fixed(config: TrainConfig, sources: Sources) -> Setting:
    """The setting without validation rows: the user's, or else the default."""
    weight, exponent, rows = DEFAULT
    if ":" in config.label_vectors:
        weight, exponent = map(float, config.label_vectors.split(":")[:2])
    if config.nearest_rows != "auto":
        rows = float(config.nearest_rows.replace("off", "0"))
    return Setting(weight, exponent, rows if sources.nearest and weight else 0.0)


def sample(rows: Examples, scores: int, model: Model) -> Examples:
    """Evenly spaced rows that have about `scores` scores; at least one."""
    most = max(1, scores // model.network.outputs)
    return rows_of(rows, np.arange(0, rows.rows, -(-rows.rows // most)))


def choose(model: Model, sources: Sources, config: TrainConfig, rows: Examples) -> Setting:
    """The best setting for validation rows: of label vectors first, then of nearest rows."""
    own, given = fixed(config, sources), ":" in config.label_vectors
    later = config.nearest_rows == "auto" and sources.nearest is not None
    each = own.rows * (not later)
    grid = [NONE, *(Setting(w, e, each) for e in EXPONENTS for w in WEIGHTS)]
    first = [own._replace(rows=each)] if given else grid
    best = measure_best(model, sources, first, rows).setting
    largest = WEIGHTS[-1]
    while not given and best.weight == largest:  # larger ones may be better
        largest *= 2
        more = [Setting(largest, exponent, each) for exponent in EXPONENTS]
        best = measure_best(model, sources, [best, *more], rows).setting
    if not (later and best.weight):
        return best
    shares = (1.0,) if given else SHARES
    second = [
        Setting(best.weight * share, best.exponent, each) for share in shares for each in ROWS
    ]
    return measure_best(model, sources, [best, *second], rows).setting


def temperature_of(model: Model, rows: Examples) -> float:
    """The temperature of all scores with the lowest loss of `rows`.

    The settings with the best order of labels often have much too large differences of scores.
    """
    lists, scores = label_lists(rows.labels), model.plain.scores(rows.inputs)
    counts, owners = np.diff(lists.indptr), csr.rows_of(lists.indptr)
    true = np.bincount(owners, scores[owners, lists.indices], rows.rows)
    shares = (counts > 0) / max(int(np.count_nonzero(counts)), 1)
    return softmax_temperature(scores, true / np.maximum(counts, 1), shares)


def divided(model: Model, temperature: float) -> Model:
    """The model of a single member with scores divided by `temperature`."""
    last = f"layers.{len(model.network.layers) - 1}."
    tensors = {
        name: each / np.float32(temperature) if name.startswith(last) else each
        for name, each in model.tensors.items()
    }
    return replace(model, tensors=tensors)


def build_sources(train: Examples, outputs: int, nearest: bool) -> Sources:
    """Label vectors, and nearest rows, of which each is a label of its own, of training rows."""
    lists, numbers = label_lists(train.labels), np.arange(train.rows + 1)
    frequencies = np.bincount(lists.indices, minlength=outputs)
    vectors, rows = build(train, lists, outputs), None
    if nearest:
        own = multi_labels(numbers, numbers[:-1].astype(np.int32))
        rows = NearestRows(
            build(train, own, train.rows), np.array(lists.indptr), np.array(lists.indices)
        )
    return Sources(vectors, rows, frequencies)


def build(train: Examples, lists: Labels, outputs: int) -> LabelVectors:
    """The vectors of all labels, each with its VALUES largest values; computed by all cores."""
    from hogbatch.kernels.cpu import label_vectors as kernels

    inputs = train.inputs
    owners = csr.rows_of(lists.indptr)[np.argsort(lists.indices, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(lists.indices, minlength=outputs))))
    squares = np.square(inputs.values, dtype=np.float64)
    sizes = np.sqrt(np.bincount(csr.rows_of(inputs.indptr), squares, train.rows))
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
    model: Model, sources: Sources, settings: Sequence[Setting], rows: Examples
) -> Measured:
    """Measure the one of `settings` with the best metric of `rows`; of equal ones, the first."""
    exponents = sorted({setting.exponent for setting in settings})
    powers = np.array([factors(1.0, exponent, sources.frequencies) for exponent in exponents])
    sums = [(1.0, w, exponents.index(exponent), own) for w, exponent, own in settings]
    sums += [(0.0, 1.0, power, 0.0) for power in range(len(exponents))]
    sums += [(0.0, 0.0, 0, 1.0)]
    best, losses = _ranked(model, sources, np.array(sums, np.float32), powers, rows)
    scored = [
        Scored(model.loss, rows.labels, None, best[:, s], model.frequencies)
        for s in range(len(sums))
    ]
    main = model.loss.metrics[0]
    values = [measure(each, main)[main] for each in scored]
    chosen = int(np.argmax(values[: len(settings)]))
    exponent = exponents.index(settings[chosen].exponent)
    alone = {"label_vectors": values[len(settings) + exponent]}
    if sources.nearest is not None:
        alone["nearest_rows"] = values[-1]
    loss = scored[chosen].mean(losses[:, chosen])
    defined = {name: value for name, value in measure(scored[chosen]).items() if np.isfinite(value)}
    return Measured(settings[chosen], loss, defined, alone)


def _ranked(
    model: Model, sources: Sources, sums: Floats, powers: Floats, rows: Examples
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The best labels [N, S, k] of rows by each of S sums, and the losses [N, S]."""
    lists, k = label_lists(rows.labels), min(max(CUTOFFS), model.network.outputs)
    given = sources.vectors, sources.nearest, sums, powers, rows.rows
    ranking = Ranking(model.network_scores, *given)
    best = np.empty((rows.rows, len(sums), k), np.int32)
    losses = np.empty((rows.rows, len(sums)))
    for block in chunks(rows.rows, ranking.rows):
        part: Any = between(rows.inputs, block.start, block.stop)
        own = lists.indptr[block.start : block.stop + 1], lists.indices
        best[block], highest, totals, true = ranking(part, own, k)
        counts = np.diff(own[0])[:, np.newaxis]
        losses[block] = softmax_losses(totals, highest[:, :, 0], true, counts)
    return best, losses
