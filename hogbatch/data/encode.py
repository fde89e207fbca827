"""Encoding of raw labels from a file as labels for kernels."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import CHOICES, LOSSES, encodings_for
from hogbatch.config.metrics import NUMBERS
from hogbatch.data import csr
from hogbatch.data.batch import Labels, multi_labels, single_labels
from hogbatch.data.raw import MAX_INDEX, LabelLists, RawSet
from hogbatch.data.schema import expect
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.printable import digits, quoted

ClassLabels = tuple[int | float | str | bool, ...]
LabelKind = Literal["binary", "classes", "multilabel", "real", "counts", "logs"]

MAX_SHOWN: Final = 10  # labels in a message
MAX_FEW_CLASSES: Final = 20  # up to this many distinct whole numbers are classes
MIN_ROWS_FEW_CLASSES: Final = 3  # if they have this many rows each, on average
MIN_ROWS_MANY_CLASSES: Final = 10  # minimum rows of each class if there are more classes


@dataclass(frozen=True, slots=True)
class Encoding:
    """The conversion of raw labels to targets; chosen once, from the training data."""

    kind: LabelKind
    classes: ClassLabels  # sorted labels of binary and classes, all of one type, else empty
    outputs: int  # C: the number of classes or labels, or of numbers per row; 1 for binary
    # Of real and counts: a target is (label - offset) / scale, so that the learning rate does not
    # depend on the labels' unit; of logs: (log1p(label) - offset) / scale. Of several targets, each
    # has its own.
    offset: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0
    # Of logs: the largest label of the training rows, which bounds predictions; it is not part of
    # digests, because earlier versions did not have it.
    largest: float | tuple[float, ...] = field(default=0.0, repr=False)

    def validate(self) -> None:
        """ValueError if the fields contradict each other."""
        classes = {"binary": 2, "classes": self.outputs}.get(self.kind, 0)
        outputs = 1 if self.kind == "binary" else self.outputs
        expect(
            len(self.classes) == classes and self.outputs == max(outputs, 1),
            f"encoding: expected {classes} classes and {max(outputs, 1)} outputs of {self.kind} "
            f"labels; got {len(self.classes)} and {self.outputs}",
        )
        kinds = {type(label) if isinstance(label, str | bool) else float for label in self.classes}
        distinct = len(kinds) < 2 and [*self.classes] == sorted({*self.classes})
        expect(distinct, "encoding: expected classes of one type, ascending and distinct")
        expect(np.min(self.scale) > 0, f"encoding: expected a scale above 0; got {self.scale}")
        shape = (self.targets,) if self.targets > 1 else ()
        expect(
            np.shape(self.offset) == np.shape(self.scale) == shape,
            f"encoding: expected an offset and a scale of each of {self.targets} targets",
        )
        logs = self.kind == "logs"
        expect(
            np.shape(self.largest) == (shape if logs else ())
            and (np.min(self.largest) > 0) == logs,
            "encoding: expected the largest label, above 0, of each target of logs",
        )

    @property
    def targets(self) -> int:
        """T, the numbers of a row; 1 for other kinds of labels."""
        return self.outputs if self.kind in NUMBERS else 1

    @property
    def unit(self) -> float:
        """The unit of losses and metrics; 1 for several targets, of which each has its own."""
        return 1.0 if isinstance(self.scale, tuple) else self.scale

    def targets_of(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The targets of labels that are numbers: [N], or [N, T] if T > 1."""
        if self.kind == "logs":
            numbers = np.log1p(numbers)
        targets: NDArray[Any] = (numbers - np.array(self.offset)) / np.array(self.scale)
        return targets

    def numbers_of(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        """The inverse of `targets_of`, float64."""
        numbers: NDArray[np.float64] = targets.astype(np.float64) * np.array(self.scale)
        numbers += np.array(self.offset)
        return np.expm1(numbers) if self.kind == "logs" else numbers

    def predictions_of(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        """`numbers_of` predicted targets.

        Those of logs are from 0 to the largest label of the training rows: one row whose logarithm
        is predicted too high would decide the squared error of all.
        """
        if self.kind == "logs":
            largest = np.array(self.largest)
            targets = targets.clip(*self.targets_of(np.stack([0 * largest, largest])))
        return self.numbers_of(targets)


def comparable(encoding: Encoding) -> Encoding:
    """`encoding` as earlier versions described it, for digests: whole numbers were floats."""
    classes = (float(each) if type(each) is int else each for each in encoding.classes)
    return replace(encoding, classes=tuple(classes))


def infer_encoding(raw: RawSet, loss: str) -> Encoding:
    """Choose the encoding for `loss`; "auto" chooses it from the labels.

    auto: lists are multilabel; two distinct labels are binary; text, and whole numbers that look
    like classes (see `look_like_classes`), are classes; all others are real. DataError if all
    labels are equal.
    """
    if loss != "auto" and loss not in LOSSES:
        raise UsageError(f"loss must be one of {', '.join(('auto', *CHOICES))}; got {loss!r}")
    expect_labelled(raw)
    if loss != "auto":
        accepted = encodings_for(loss)
        lists = raw.labels is None and "multilabel" in accepted
        return ENCODERS["multilabel" if lists else accepted[0]](raw, loss)
    if raw.labels is None:
        return _multilabel(raw, loss)
    if raw.labels.ndim > 1:
        return _real(raw, loss)
    distinct = _distinct(raw, raw.labels)
    if len(distinct) == 1:
        raise DataError(
            f"{raw.source}: every label is {_shown(distinct)}; expected at least two distinct "
            "labels (--label selects the label column of a CSV file)"
        )
    if len(distinct) == 2:
        return _binary(raw, loss)
    classes = bool(raw.label_names) or look_like_classes(raw.labels)
    return (_classes if classes else _real)(raw, loss)


def _distinct(raw: RawSet, labels: NDArray[Any]) -> list[Any]:
    """The distinct labels in ascending order: numbers, text or booleans."""
    distinct = np.unique(labels)
    if not raw.label_names:
        return list(distinct.tolist())
    return sorted(raw.label_names[index] for index in distinct.astype(np.intp))


def look_like_classes(labels: NDArray[Any]) -> bool:
    """Whether three or more distinct labels are classes rather than quantities.

    They are classes if they are whole numbers and either there are at most MAX_FEW_CLASSES, with an
    average of MIN_ROWS_FEW_CLASSES rows, or they start at 0 or 1 without gaps, with at least
    MIN_ROWS_MANY_CLASSES rows each. Quantities such as ages, years and counts start elsewhere, have
    gaps, or have rare values.
    """
    distinct, rows = np.unique(labels, return_counts=True)
    if (distinct != np.floor(distinct)).any():
        return False
    if len(distinct) <= MAX_FEW_CLASSES:
        return len(labels) >= MIN_ROWS_FEW_CLASSES * len(distinct)
    without_gap = distinct[0] in (0, 1) and distinct[-1] - distinct[0] == len(distinct) - 1
    return bool(without_gap and rows.min() >= MIN_ROWS_MANY_CLASSES)


def explain(raw: RawSet, encoding: Encoding) -> str | None:
    """A note on how "auto" interpreted whole-number labels, if it did, and how to change that."""
    if raw.label_names:
        return None
    if encoding.kind == "classes":
        return f"labels: {encoding.outputs} classes (--loss squared for numbers)"
    if encoding.kind != "real" or raw.labels is None or encoding.targets > 1:
        return None
    if (raw.labels != np.floor(raw.labels)).any():
        return None
    distinct = len(np.unique(raw.labels))
    return (
        f"labels: {distinct} distinct whole numbers treated as numbers (--loss softmax for classes)"
    )


def _binary(raw: RawSet, loss: str) -> Encoding:
    distinct = _distinct(raw, _single(raw, f"loss {loss} needs"))
    if len(distinct) != 2:
        raise DataError(
            f"{raw.source}: loss {loss} needs exactly two distinct labels; "
            f"got {len(distinct)} ({_shown(distinct)})"
        )
    return Encoding("binary", tuple(distinct), 1)


def _classes(raw: RawSet, loss: str) -> Encoding:
    labels = _single(raw, f"loss {loss} needs")
    broken = np.flatnonzero(labels != np.floor(labels))
    if len(broken):
        location, label = raw.locate(int(broken[0])), labels[broken[0]]
        raise DataError(f"{location}: loss {loss} needs whole-number labels; got {digits(label)}")
    distinct = _distinct(raw, labels)
    if len(distinct) < 2:
        raise DataError(
            f"{raw.source}: loss {loss} needs at least two distinct labels; got {_shown(distinct)}"
        )
    return Encoding("classes", tuple(distinct), len(distinct))


def _multilabel(raw: RawSet, loss: str) -> Encoding:
    indices = label_lists(raw).indices
    outputs = max(raw.classes_hint, int(indices.max(initial=-1)) + 1)
    if not outputs:
        raise DataError(f"{raw.source}: no row has a label")
    return Encoding("multilabel", (), outputs)


def _real(raw: RawSet, loss: str) -> Encoding:
    labels = number_labels(raw, f"loss {loss} needs")
    deviation = labels.std(axis=0)
    return encoding_of_numbers("real", labels.mean(axis=0), np.where(deviation, deviation, 1.0))


def _counts(raw: RawSet, loss: str) -> Encoding:
    mean = amounts(raw, f"loss {loss} needs").mean(axis=0)
    if not mean.all():
        raise DataError(f"{raw.source}: loss {loss} needs a label above 0; every label is 0")
    return encoding_of_numbers("counts", np.zeros_like(mean), mean)


def encoding_of_numbers(kind: LabelKind, offset: NDArray[Any], scale: NDArray[Any]) -> Encoding:
    """The encoding of numbers with these offsets and scales: [], or [T] of several targets."""
    if not scale.ndim:
        return Encoding(kind, (), 1, float(offset), float(scale))
    return Encoding(kind, (), len(scale), tuple(offset.tolist()), tuple(scale.tolist()))


ENCODERS: Final[dict[str, Callable[[RawSet, str], Encoding]]] = {  # by kind of labels
    "binary": _binary,
    "classes": _classes,
    "multilabel": _multilabel,
    "real": _real,
    "counts": _counts,
}


def encode(raw: RawSet, encoding: Encoding) -> Labels:
    """Convert raw labels to labels for kernels; DataError names the first invalid row.

    binary: the larger raw label becomes 1. classes: the index among the sorted raw labels. Labels
    are matched to those of the training data as text, so that "1" in one file is 1 in another.
    multilabel: lists, unchanged. real: standardised with the training labels' mean and deviation.
    counts: divided by the training labels' mean. Each target has its own mean and deviation.
    """
    expect_labelled(raw)
    if encoding.kind == "multilabel":
        lists = label_lists(raw)
        beyond = np.flatnonzero(lists.indices >= encoding.outputs)
        if len(beyond):
            raise DataError(
                f"{raw.locate(csr.row_of(lists.indptr, beyond[0]))}: label "
                f"{lists.indices[beyond[0]]} does not occur in the training data, whose labels are "
                f"0 to {encoding.outputs - 1}"
            )
        return multi_labels(*lists)
    if encoding.kind in NUMBERS:
        numbers = number_labels if encoding.kind == "real" else amounts
        labels = numbers(raw, "the training data has")
        if (got := labels[:1].size) != encoding.targets:
            raise DataError(
                f"{raw.source}: expected {encoding.targets} numbers per row as labels, as in the "
                f"training data; got {got}"
            )
        return single_labels(encoding.targets_of(labels).astype(np.float32).reshape(-1))
    labels = _single(raw, "the training data has")
    places = _places(raw, labels, encoding.classes)
    unseen = np.flatnonzero(places < 0)
    if len(unseen):
        row = int(unseen[0])
        raise DataError(
            f"{raw.locate(row)}: label {_shown(_distinct(raw, labels[row : row + 1]))} does not "
            f"occur in the training data ({_shown(encoding.classes)}): leave its rows out, or "
            "train a new model on them"
        )
    return single_labels(places.astype(np.float32))


def _places(raw: RawSet, labels: NDArray[Any], classes: ClassLabels) -> NDArray[np.intp]:
    """The position of each label among `classes`, or -1: intp[N]."""
    known = np.array(classes)
    if not raw.label_names and known.dtype.kind in "if":
        places = np.searchsorted(known, labels).clip(max=len(known) - 1)
        return np.where(known[places] == labels, places, -1)
    position = {label_text(label): index for index, label in enumerate(classes)}
    names: Iterable[Any] = raw.label_names
    if raw.label_names:
        indices = labels.astype(np.intp)
    else:
        names, indices = np.unique(labels, return_inverse=True)
    return np.array([position.get(label_text(name), -1) for name in names], np.intp)[indices]


def label_text(label: Any) -> str:
    """A number, text or boolean label as text. Labels with the same text are the same label."""
    if isinstance(label, str):
        return str(label)
    return str(bool(label)) if isinstance(label, bool | np.bool_) else digits(label)


def _single(raw: RawSet, subject: str) -> NDArray[Any]:
    """The labels of a set with one label per row; `subject` starts the error message."""
    labels = _given(raw, subject)
    if labels.ndim > 1:
        raise DataError(f"{raw.source}: {subject} one label per row; got {labels.shape[1]}")
    return labels


def _given(raw: RawSet, subject: str) -> NDArray[Any]:
    """The labels of a set without label lists."""
    if raw.labels is not None:
        return raw.labels
    assert raw.label_lists is not None
    counts = np.diff(raw.label_lists.indptr)
    odd = int(np.argmax(counts != 1))
    raise DataError(f"{raw.locate(odd)}: {subject} one label per row; got a list of {counts[odd]}")


def number_labels(raw: RawSet, subject: str) -> NDArray[Any]:
    """The labels of a set whose labels are numbers, [N] or [N, T]; `subject` starts the error."""
    lists = raw.label_lists
    if lists is not None and raw.classes_hint and raw.lines is None:  # a matrix of 0 and 1
        marks = np.zeros((raw.rows, raw.classes_hint))
        marks[csr.rows_of(lists.indptr), lists.indices] = 1
        return marks
    labels = _given(raw, subject)
    if raw.label_names:
        label = _shown([raw.label_names[int(labels[0])]])
        raise DataError(f"{raw.locate(0)}: {subject} numbers as labels; got {label}")
    return labels


def amounts(raw: RawSet, subject: str) -> NDArray[Any]:
    """The labels of a set whose labels are numbers of at least 0, [N] or [N, T]."""
    labels = number_labels(raw, subject)
    negative = np.argwhere(labels < 0)
    if len(negative):
        location, label = raw.locate(int(negative[0, 0])), labels[tuple(negative[0])]
        raise DataError(f"{location}: {subject} labels of at least 0; got {digits(label)}")
    return labels


def label_lists(raw: RawSet) -> LabelLists:
    """Label lists; whole numbers, one per row, become lists of one."""
    if raw.label_lists is not None:
        return raw.label_lists
    _single(raw, "multi-label losses need")
    labels = number_labels(raw, "multi-label losses need")
    bad = np.flatnonzero((labels < 0) | (labels > MAX_INDEX) | (labels != np.floor(labels)))
    if len(bad):
        location, label = raw.locate(int(bad[0])), labels[bad[0]]
        raise DataError(
            f"{location}: multi-label losses need whole-number labels >= 0; got {digits(label)}"
        )
    return LabelLists(np.arange(len(labels) + 1), labels.astype(np.int32))


def expect_labelled(raw: RawSet) -> None:
    """DataError if the rows have no labels."""
    if raw.labels is None and raw.label_lists is None:
        raise DataError(
            f"{raw.source} has no labels: expected a label column in text, an array y in .npz, or "
            "pictures in folders with the names of their classes"
        )


def _shown(labels: Iterable[Any]) -> str:
    first = list(itertools.islice(labels, MAX_SHOWN + 1))
    shown = [quoted(each) if isinstance(each, str) else label_text(each) for each in first]
    return ", ".join(shown[:MAX_SHOWN]) + (", ..." if len(first) > MAX_SHOWN else "")
