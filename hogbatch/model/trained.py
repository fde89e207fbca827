"""A trained model in use: scores, labels and probabilities of rows, with NumPy alone."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.layers import Shape
from hogbatch.config.losses import LOSSES, Loss
from hogbatch.data.batch import DoubleInputs, Inputs, RawInputs, count
from hogbatch.data.csr import to_csr
from hogbatch.data.encode import Encoding
from hogbatch.data.facts import Fitted, Frequencies
from hogbatch.data.memory import expect_ids, expect_in_range, flat_rows
from hogbatch.data.raw import Columns
from hogbatch.data.scale import Scaler, scaled
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import encode
from hogbatch.errors import UsageError
from hogbatch.kernels.blocks import OUTPUTS, LayerWeights, ScoreSummary, between, blocks, hidden
from hogbatch.kernels.contract import ACTIVATIONS, NORMALISED, Floats
from hogbatch.machine.budget import require
from hogbatch.model.ensemble import mean_scores
from hogbatch.model.inputs import Below, as_inputs, inputs_of_dense_layers, slice_lists
from hogbatch.model.label_vectors import LabelVectors, NearestRows
from hogbatch.model.metrics import log_odds
from hogbatch.model.network import Network
from hogbatch.model.ranking import Lists, Ranking, Shortlist

Layers = tuple[LayerWeights, ...]
Blocks = Iterator[tuple[int, NDArray[Any]]]  # of scores of scaled rows, with their first column
Scorers = tuple[Callable[[Inputs], Blocks], ...]  # of each member

CHUNK: Final = 1 << 20  # floats of the widest intermediate result, 4 MiB
MAX_PRODUCTS: Final = 1 << 24  # of rows with label vectors, 64 MiB
FINITE_ROWS: Final = 4096  # rows whose scores are checked at a time
# Scores from which on compiled ranking saves more time than loading its kernels takes.
COMPILED: Final = 1 << 28
# Multiplications from which on compiled kernels save more time than loading them takes; and those
# from which on they are faster once they are loaded.
FIRST_PRODUCTS: Final = 1 << 36
PRODUCTS: Final = 1 << 28
NO_LABELS: Final = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)  # no slots: cached_property needs a __dict__
class Model:
    """A trained network with everything needed to apply it to unscaled rows.

    Its methods take rows as an :class:`Inputs`, a matrix [N, F] of numbers, a data frame, a SciPy
    sparse matrix, or an object like its csr_array (`indptr`, `indices`, `data`). The model scales
    them, in their own precision. UsageError if the number of features differs from the network's,
    if a value is not finite, or if scaled values or scores are beyond the range of float32.

    `feature_names` are the names of the features if the training file had a header, else None. The
    columns of a data frame (any object with `columns`) are matched by these names, in any order.
    A model of a table (`table`) takes data frames and dictionaries of columns with raw cells, and
    matrices if the columns of the table are numbers.
    In `about`, "label" is the name of the label column and "label_column" its number, from 0.
    The scores of an ensemble are those of the mean prediction of its members, which have the
    parameters `tensors` and `others`. The products of a row with `label_vectors` are added, and
    the scores by `nearest_rows`, which only a model with label vectors may have.
    """

    network: Network
    tensors: dict[str, Floats] = field(repr=False)  # without padding, by Tensor.name
    encoding: Encoding
    scaler: Scaler | None = field(repr=False)
    index_base: int | None  # number of the first feature in libsvm files
    about: dict[str, str]  # "hogbatch" version, "data", "label" and "label_column", "lsh" settings
    frequencies: Frequencies | None = field(default=None, repr=False)  # of label lists, if known
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)  # [F]
    table: TableEncoding | None = field(default=None, repr=False)  # of a model of a table
    threshold: float = 0.5  # probability above which `predict` gives the second of two labels
    others: tuple[dict[str, Floats], ...] = field(default=(), repr=False)  # of an ensemble
    label_vectors: LabelVectors | None = field(default=None, repr=False)  # times their factors
    nearest_rows: NearestRows | None = field(default=None, repr=False)  # times their weight

    @property
    def input_shape(self) -> Shape:
        """The shape of a row, (height, width, channels), of a network with a backbone; else ()."""
        return () if self.network.backbone is None else self.network.backbone.inputs

    @property
    def score_threshold(self) -> np.float32:
        """The score above which `predict` gives the second of two labels."""
        return np.float32(log_odds(self.threshold))

    @property
    def plain(self) -> "Model":
        """The model for rows that are scaled and encoded already."""
        return replace(self, scaler=None, table=None, feature_names=None)

    @property
    def columns(self) -> Columns:
        """The known names and positions of the training file's columns."""
        label, position = self.about.get("label"), self.about.get("label_column")
        where = None if position is None else int(position)
        return Columns(self.feature_names or (), label or None, where)

    @property
    def fitted(self) -> Fitted:
        """How the training rows were prepared."""
        known = self.encoding, self.scaler, self.table, self.columns, self.index_base
        return Fitted(*known, self.network.features)

    def scores(self, inputs: Any, dtype: Any = np.float32) -> NDArray[Any]:
        """Decision values [N, C]; for real labels, in the scale of the standardised targets.

        In float32, the last digits depend on the number of rows, because matrix products are
        rounded differently; with `dtype` float64 they are computed in double precision.
        """
        rows = self._rows(inputs)
        out = self._results(count(rows), dtype)
        for where, scores in self.score_blocks(rows, dtype):
            out[where] = scores
        return out

    def predict_proba(self, inputs: Any) -> Floats:
        """Probabilities in the shape of scikit-learn's predict_proba: binary [N, 2], else [N, C].

        UsageError if the loss does not define probabilities.
        """
        scores = self.scores(inputs)
        for start in range(0, len(scores), FINITE_ROWS):
            finite = np.isfinite(scores[start : start + FINITE_ROWS]).all(axis=1)
            expect_finite_scores(finite, start)
        return self.loss.probabilities(scores)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the label columns that the T targets are from, else their numbers."""
        named = () if self.table is None else tuple(each.name for each in self.table.labels)
        targets = self.encoding.targets
        return named if len(named) == targets else tuple(map(str, range(targets)))

    def predict(self, inputs: Any) -> NDArray[Any]:
        """The most likely labels, in the form of the training file.

        binary, classes: numbers, text or booleans [N]. multilabel: uint8[N, C], 1 where a label
        has a probability above 0.5; UsageError if the loss only ranks labels. real, counts:
        float64[N], or [N, T] of several targets.
        """
        self.loss.expect_predictions()
        if self.encoding.kind == "multilabel":
            rows = self._rows(inputs)
            likely = self._results(count(rows), np.uint8)
            for where, scores in self.score_blocks(rows):
                expect_finite_scores(np.isfinite(scores).all(axis=1), where[0].start)
                likely[where] = self.loss.predict(scores)
            return likely
        if self.encoding.kind == "classes":
            return np.array(self.encoding.classes)[self.top(inputs, 1)[:, 0]]
        scores = self.scores(inputs)
        expect_finite_scores(np.isfinite(scores).all(axis=1), 0)
        labels = self.loss.predict(scores - self.score_threshold)
        if not self.encoding.classes:
            return self.encoding.predictions_of(labels)
        classes: NDArray[Any] = np.array(self.encoding.classes)[labels]
        return classes

    def top(self, inputs: Any, k: int, *, approximate: bool = False) -> NDArray[np.int64]:
        """The columns with the `k` highest scores of each row, best first: int64[N, k].

        Columns with equal scores are in ascending order. With `approximate`, only labels that
        label vectors and nearest rows rank highest are compared, which takes much less time.
        """
        found = [part.columns for part in self.summaries(inputs, k, approximate=approximate)]
        return np.concatenate([*found, np.empty((0, k), np.int64)])

    def top_proba(
        self, inputs: Any, k: int, *, approximate: bool = False
    ) -> tuple[NDArray[np.int64], Floats]:
        """`top` with the probabilities of the columns, float32[N, k], as in `predict_proba`.

        With `approximate`, those of labels that are not compared are taken to be 0.
        """
        self.loss.expect_probabilities()
        kind = self.loss.kind if self.loss.normalised else None
        found = self.summaries(inputs, k, kind, approximate=approximate)
        blocks = [(part.columns, part.probabilities()) for part in found]
        blocks.append((np.empty((0, k), np.int64), np.empty((0, k), np.float32)))
        columns, fractions = zip(*blocks, strict=True)
        return np.concatenate(columns), np.concatenate(fractions)

    def summaries(
        self,
        inputs: Any,
        k: int,
        kind: int | None = None,
        true: Lists | None = None,
        *,
        approximate: bool = False,
    ) -> Iterator[ScoreSummary]:
        """Yield, part by part, a summary of the scores.

        See :class:`ScoreSummary` for `k`, `kind` and `true`, the true columns of all rows, and
        `top` for `approximate`. UsageError for a row whose scores are not finite.
        """
        if not 1 <= k <= self.network.outputs:
            raise UsageError(f"expected k from 1 to {self.network.outputs}; got {k}")
        rows = self._rows(inputs)
        ranking: Ranking | Shortlist | None = None
        if approximate:
            ranking = self._shortlist()
        elif kind in (None, *NORMALISED):
            ranking = self._ranking(count(rows))
        scorers, most = self._scorers_for(count(rows))
        for start, part in self._parts(rows, ranking.rows if ranking else most):
            size = count(part)
            own = slice_lists(true, start, start + size) if true else None
            summary = ScoreSummary(size, k, kind, own)
            if ranking is not None:
                found = ranking(to_csr(part), own or (np.zeros(size + 1, np.int64), NO_LABELS), k)
                summary.fill(*(each[:, 0] for each in found))
            else:
                for first, scores in self._scores_of(part, scorers):
                    summary.add(first, scores)
            expect_finite_scores(summary.finite, start)
            yield summary

    def _ranking(self, rows: int) -> Ranking | None:
        """The compiled ranking with label vectors; None for few rows, or without Numba."""
        outputs, vectors = self.network.outputs, self.label_vectors
        if vectors is None or rows * outputs < COMPILED or find_spec("numba") is None:
            return None
        sums, powers = np.array([[1, 1, 0, 1]], np.float32), np.ones((1, outputs), np.float32)
        return Ranking(self.network_scores, vectors, self.nearest_rows, sums, powers, rows)

    def _shortlist(self) -> Shortlist:
        """The compiled ranking of a part of the labels; UsageError without label vectors."""
        vectors, last = self.label_vectors, self.layers[-1]
        if vectors is None or self.others or not last.output_major or find_spec("numba") is None:
            raise UsageError(
                "an approximate ranking needs Numba, and a model with label vectors that is not an "
                "ensemble"
            )
        known = (last.weights, last.bias), vectors, self.nearest_rows
        return Shortlist(lambda rows: hidden(self.layers, rows).dense, *known)

    def network_scores(self, rows: Inputs, out: Floats) -> None:
        """Compute the network's scores[B, C] of scaled rows, if possible at once."""
        last = self.layers[-1]
        if self.others or not last.output_major:
            for first, scores in self._predicted(rows, self._interpreted(np.float32)):
                out[:, first : first + scores.shape[1]] = scores
            return
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(hidden(self.layers, rows).dense, last.weights.T, out=out)
            out += last.bias

    def _parts(self, rows: RawInputs, size: int | None = None) -> Iterator[tuple[int, Inputs]]:
        """Yield, part by part, of up to `size` rows, the first row and the scaled rows."""
        if size is None:
            *widths, last = (layer.width for layer in self.network.layers)
            if self.network.backbone is not None:
                widths += (each.values + each.patches for each in self.network.backbone.layers)
            last = last * len(self.members) if self.others else min(last, OUTPUTS)
            size = max(1, CHUNK // max(rows.dense.shape[1], *widths, last))
            if self.label_vectors is not None:
                stored = 0 if self.nearest_rows is None else len(self.nearest_rows.indptr)
                size = min(size, max(1, MAX_PRODUCTS // max(stored, self.network.outputs)))
        for start in range(0, count(rows), size):
            unscaled = between(rows, start, start + size)
            part = scaled(unscaled, self.scaler)
            with np.errstate(over="ignore"):  # what is beyond the range becomes infinite
                part = part._replace(values=np.asarray(part.values, np.float32))
            expect_in_range(unscaled, part, start)
            yield start, part

    def _rows(self, inputs: Any) -> RawInputs:
        """The caller's rows, with their columns in the order of the features, or encoded."""
        if self.table is not None and not isinstance(inputs, Inputs | DoubleInputs):
            return encode(inputs, self.table, "X")
        flat = flat_rows(inputs, self.input_shape)
        rows = as_inputs(flat, self.network.features, self.feature_names or ())
        expect_ids(rows, self.network.backbone, "X")
        return rows

    @property
    def loss(self) -> Loss:
        """The loss that the network was trained with; it interprets the scores."""
        return LOSSES[self.network.loss]

    @cached_property
    def members(self) -> tuple[Layers, ...]:
        """The layers of each member of an ensemble; of a single model, one member."""
        return tuple(map(self._layers, (self.tensors, *self.others)))

    @property
    def layers(self) -> Layers:
        """The layers of the first member."""
        return self.members[0]

    def _layers(self, tensors: dict[str, Floats]) -> Layers:
        """The layers as `hogbatch.kernels.blocks` computes them; views of the tensors."""
        layers = []
        for index, layer in enumerate(self.network.layers):
            weight, bias = (tensors[f"layers.{index}.{each}"] for each in ("weight", "bias"))
            activation = ACTIVATIONS[layer.activation]
            layers.append(LayerWeights(weight, bias, activation, layer.output_major))
        return tuple(layers)

    def _results(self, rows: int, dtype: Any) -> NDArray[Any]:
        """An empty array [rows, C]."""
        size = rows * self.network.outputs * np.dtype(dtype).itemsize
        purpose = f"results for {rows:,} rows and {self.network.outputs:,} outputs"
        require(size, purpose, "use fewer rows at a time, or only the best K (top)")
        return np.empty((rows, self.network.outputs), dtype)

    def score_blocks(
        self, inputs: RawInputs, dtype: Any = np.float32
    ) -> Iterator[tuple[tuple[slice, slice], NDArray[Any]]]:
        """Yield blocks of scores with their place in [N, C]; each is valid until the next one."""
        scorers, most = self._scorers_for(count(inputs), dtype)
        for start, part in self._parts(inputs, most):
            for first, scores in self._scores_of(part, scorers, dtype):
                rows, columns = scores.shape
                yield (slice(start, start + rows), slice(first, first + columns)), scores

    def _scorers_for(self, rows: int, dtype: Any = np.float32) -> tuple[Scorers, int | None]:
        """What computes the scores of each member, and the rows to score at a time, if known.

        Many rows in float32 are scored by compiled kernels.
        """
        wide = self.network.output_major or self.network.outputs > OUTPUTS
        kernels, products = "scores", sum(math.prod(each.weights.shape) for each in self.layers)
        if (backbone := self.network.backbone) is not None:  # NumPy takes 8 times as long for it
            kernels, products = "backbone", 8 * backbone.products
        least = PRODUCTS if f"hogbatch.kernels.cpu.{kernels}" in sys.modules else FIRST_PRODUCTS
        compiled = not wide and dtype == np.float32 and rows * products >= least
        if not compiled or find_spec("numba") is None:
            return self._interpreted(dtype), None
        scorers = self._compiled if backbone is None else self._interpreted(dtype, compiled)
        widest = max(self.network.features, len(self.layers[0].weights), self.network.outputs)
        return scorers, max(1, CHUNK // widest)

    def _interpreted(self, dtype: Any, compiled: bool = False) -> Scorers:
        """Dense layers by NumPy; layers below them by NumPy, or by `compiled` kernels."""
        members = self.members
        if dtype != np.float32:
            members = tuple(tuple(each.astype(dtype) for each in layers) for layers in members)
        every = (self.tensors, *self.others)
        below = (inputs_of_dense_layers(self.network, each, dtype, compiled) for each in every)
        return tuple(partial(_blocks, *each) for each in zip(members, below, strict=True))

    @cached_property
    def _compiled(self) -> Scorers:
        from hogbatch.model.compiled import CompiledNetwork  # here: Numba takes a second

        return tuple(CompiledNetwork(self.network, each) for each in (self.tensors, *self.others))

    def _scores_of(self, part: Inputs, scorers: Scorers, dtype: Any = np.float32) -> Blocks:
        """Yield blocks of the scores of scaled rows with their first column."""
        found = self._predicted(part, scorers)
        if self.label_vectors is None:
            yield from found
            return
        given = to_csr(part), self.network.outputs, dtype
        products = self.label_vectors.scores(*given)
        if self.nearest_rows is not None:
            products += self.nearest_rows.scores(*given)
        for first, scores in found:
            scores += products[:, first : first + scores.shape[1]]
            yield first, scores

    def _predicted(self, part: Inputs, scorers: Scorers) -> Blocks:
        """Yield blocks of the scores of the members.

        An ensemble has one block, since the mean of its probabilities takes all scores of a row.
        """
        found = (score(part) for score in scorers)
        if not self.others:
            yield from next(found)
            return
        scores = [np.hstack([block.copy() for _, block in each]) for each in found]
        mean = mean_scores(self.loss, np.array(scores, np.float64))
        yield 0, mean.astype(scores[0].dtype)


def _blocks(layers: Layers, below: Below, part: Inputs) -> Blocks:
    return blocks(layers[-1], hidden(layers, part if below is None else below(part)))


def expect_finite_scores(finite: np.bool_ | NDArray[np.bool_], start: int = 0) -> None:
    """UsageError for the first row whose scores are not finite; finite[0] is for row `start`."""
    if not finite.all():
        row = start + int(np.argmin(finite))
        raise UsageError(
            f"row {row} (counted from 0): the model's scores are beyond the range of float32: its "
            "features are too large for this model"
        )
