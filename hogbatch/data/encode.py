"""From labels as a file has them to labels as kernels take them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Labels, multi_labels, single_labels
from hogbatch.data.raw import MAX_INDEX, LabelLists, RawSet
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.printable import digits
from hogbatch.model.losses import LOSSES, encodings_for

Kind = Literal["binary", "classes", "multilabel", "real"]

FEW: Final = 20  # distinct whole numbers that are classes,
FEW_ROWS: Final = 3  # if each has as many rows, on average;
MANY_ROWS: Final = 10  # of more classes each has at least as many


@dataclass(frozen=True, slots=True)
class Encoding:
    """How raw labels become targets; decided once, on the training data."""

    kind: Kind
    classes: tuple[float, ...]  # sorted raw labels of binary and classes, else empty
    outputs: int  # C: 1 for binary and real, else the number of classes or labels
    offset: float = 0.0  # of real: a target is (label - offset) / scale, so that no learning rate
    scale: float = 1.0  # has to fit the labels' unit


def infer_encoding(raw: RawSet, loss: str) -> Encoding:
    """Decide the encoding for `loss`, or find one that suits the labels when it is "auto".

    auto: lists are multilabel; two distinct labels binary; whole numbers that look like classes
    (see `_like_classes`) classes; everything else real. DataError if all labels are the same.
    """
    if loss not in ("auto", *LOSSES):
        raise UsageError(f"loss must be one of {', '.join(('auto', *LOSSES))}; got {loss!r}")
    if raw.labels is None and raw.label_lists is None:
        raise _no_labels(raw)
    if loss == "auto":
        return _auto(raw, loss)
    accepted = encodings_for(loss)
    lists = raw.labels is None and "multilabel" in accepted
    return ENCODERS["multilabel" if lists else accepted[0]](raw, loss)


def _auto(raw: RawSet, loss: str) -> Encoding:
    if raw.labels is None:
        return _multilabel(raw, loss)
    distinct = np.unique(raw.labels)
    if len(distinct) == 1:
        raise DataError(
            f"{raw.source}: every label is {digits(distinct[0])}; expected at least two different "
            "ones (--label chooses the label column of a CSV file)"
        )
    if len(distinct) == 2:
        return _binary(raw, loss)
    return (_classes if _like_classes(raw.labels) else _real)(raw, loss)


def _like_classes(labels: NDArray[np.float64]) -> bool:
    """Whether three or more distinct labels are names of classes rather than quantities.

    They are if they are whole numbers and either at most FEW of them occur, in FEW_ROWS rows each
    on average, or they go from 0 or 1 on without a gap, each in at least MANY_ROWS rows: quantities
    such as ages, years and counts start elsewhere, have gaps, or values that hardly occur.
    """
    distinct, rows = np.unique(labels, return_counts=True)
    if (distinct != np.floor(distinct)).any():
        return False
    if len(distinct) <= FEW:
        return len(labels) >= FEW_ROWS * len(distinct)
    without_gap = distinct[0] in (0, 1) and distinct[-1] - distinct[0] == len(distinct) - 1
    return bool(without_gap and rows.min() >= MANY_ROWS)


def explain(raw: RawSet, encoding: Encoding) -> str:
    """Say as what "auto" took whole-number labels, and how to change it; else an empty sentence."""
    if encoding.kind == "classes":
        return f"labels: {encoding.outputs} classes (--loss squared for numbers)"
    if encoding.kind != "real" or raw.labels is None:
        return ""
    if (raw.labels != np.floor(raw.labels)).any():
        return ""
    distinct = len(np.unique(raw.labels))
    return (
        f"labels: {distinct} distinct whole numbers taken as numbers (--loss softmax for classes)"
    )


def _binary(raw: RawSet, loss: str) -> Encoding:
    distinct = np.unique(_single(raw, f"loss {loss} needs"))
    if len(distinct) != 2:
        raise DataError(
            f"{raw.source}: loss {loss} needs exactly two distinct labels; "
            f"got {len(distinct)} ({_shown(distinct)})"
        )
    return Encoding("binary", tuple(distinct.tolist()), 1)


def _classes(raw: RawSet, loss: str) -> Encoding:
    labels = _single(raw, f"loss {loss} needs")
    broken = np.flatnonzero(labels != np.floor(labels))
    if len(broken):
        place, label = raw.locate(int(broken[0])), labels[broken[0]]
        raise DataError(f"{place}: loss {loss} needs whole-number labels; got {digits(label)}")
    distinct = np.unique(labels)
    if len(distinct) < 2:
        raise DataError(
            f"{raw.source}: loss {loss} needs at least two distinct labels; got {_shown(distinct)}"
        )
    return Encoding("classes", tuple(distinct.tolist()), len(distinct))


def _multilabel(raw: RawSet, loss: str) -> Encoding:
    indices = _lists(raw).indices
    outputs = max(raw.classes_hint, int(indices.max(initial=-1)) + 1)
    if not outputs:
        raise DataError(f"{raw.source}: not one row has a label")
    return Encoding("multilabel", (), outputs)


def _real(raw: RawSet, loss: str) -> Encoding:
    labels = _single(raw, f"loss {loss} needs")
    return Encoding("real", (), 1, float(labels.mean()), float(labels.std()) or 1.0)


ENCODERS: Final[dict[str, Callable[[RawSet, str], Encoding]]] = {  # by kind of labels
    "binary": _binary,
    "classes": _classes,
    "multilabel": _multilabel,
    "real": _real,
}


def encode(raw: RawSet, encoding: Encoding) -> Labels:
    """Make labels for kernels; DataError names the first row whose label does not fit.

    binary: the larger raw label becomes 1. classes: the place among the sorted raw labels.
    multilabel: lists as they are. real: standardised with the training labels' moments.
    """
    if raw.labels is None and raw.label_lists is None:
        raise _no_labels(raw)
    if encoding.kind == "multilabel":
        return _encode_lists(raw, encoding.outputs)
    labels = _single(raw, "the training data has")
    if encoding.kind == "real":
        targets = (labels - encoding.offset) / encoding.scale
        return single_labels(targets.astype(np.float32))
    classes = np.array(encoding.classes)
    places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    unseen = np.flatnonzero(classes[places] != labels)
    if len(unseen):
        place, label = raw.locate(int(unseen[0])), labels[unseen[0]]
        raise DataError(
            f"{place}: label {digits(label)} does not occur in the training data "
            f"({_shown(classes)})"
        )
    return single_labels(places.astype(np.float32))


def _encode_lists(raw: RawSet, outputs: int) -> Labels:
    lists = _lists(raw)
    beyond = np.flatnonzero(lists.indices >= outputs)
    if len(beyond):
        row = int(np.searchsorted(lists.indptr, beyond[0], side="right")) - 1
        raise DataError(
            f"{raw.locate(row)}: label {lists.indices[beyond[0]]} does not occur in the training "
            f"data, whose labels go from 0 to {outputs - 1}"
        )
    return multi_labels(*lists)


def _single(raw: RawSet, who: str) -> NDArray[np.float64]:
    """Labels of a set with one label a row."""
    if raw.labels is not None:
        return raw.labels
    assert raw.label_lists is not None
    counts = np.diff(raw.label_lists.indptr)
    odd = int(np.argmax(counts != 1))
    raise DataError(f"{raw.locate(odd)}: {who} one label a row; got a list of {counts[odd]}")


def _lists(raw: RawSet) -> LabelLists:
    """Label lists; whole numbers, one a row, are lists of one."""
    if raw.label_lists is not None:
        return raw.label_lists
    assert raw.labels is not None
    labels = raw.labels
    bad = np.flatnonzero((labels < 0) | (labels > MAX_INDEX) | (labels != np.floor(labels)))
    if len(bad):
        place, label = raw.locate(int(bad[0])), labels[bad[0]]
        raise DataError(f"{place}: multi-label needs whole labels from 0 on; got {digits(label)}")
    return LabelLists(np.arange(len(labels) + 1), labels.astype(np.int32))


def _no_labels(raw: RawSet) -> DataError:
    return DataError(
        f"{raw.source} has no labels: expected a label column in text, or an array y in .npz"
    )


def _shown(labels: NDArray[np.float64]) -> str:
    more = ", ..." if len(labels) > 10 else ""
    return ", ".join(digits(label) for label in labels[:10]) + more
