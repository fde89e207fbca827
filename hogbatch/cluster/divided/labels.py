"""The labels of all parts together, for the choice of an encoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.divided.records import ListedLabels, PartSurvey, SingleLabels
from hogbatch.cluster.divided.survey import split_part
from hogbatch.config.losses import encodings_for
from hogbatch.data.batch import dense_inputs
from hogbatch.data.encode import Encoding, label_lists
from hogbatch.data.order import Fractions
from hogbatch.data.raw import LabelLists, RawSet
from hogbatch.data.source import shown
from hogbatch.errors import DataError

NO_INPUTS: Final = dense_inputs(np.empty((0, 0), np.float32))


@dataclass(frozen=True, slots=True)
class JoinedLabels(RawSet):
    """The labels of all parts, in their order, without inputs."""

    parts: tuple[tuple[str, int], ...] = ()  # file and number of rows of each

    def locate(self, row: int) -> str:
        """The file of `row`, and its number there."""
        for file, rows in self.parts:
            if row < rows:
                return f"{file}: row {row}"
            row -= rows
        raise IndexError(row)


def joined_labels(folder: Path, surveys: Sequence[PartSurvey], loss: str) -> RawSet:
    """The labels of all parts as those of one file, for `infer_encoding` with `loss`.

    If a part has lists, all have: a file whose rows happen to have one label each has lists of one.
    Then the result has a single list, with the highest label. DataError if labels of parts differ
    in type, or if the loss needs one label per row.
    """
    listed = next((each for each in surveys if isinstance(each.labels, ListedLabels)), None)
    if listed is None:
        return _joined_single(folder, surveys)
    if (accepted := encodings_for(loss)) and "multilabel" not in accepted:
        file = shown(listed.part.path)
        raise DataError(f"{file}: loss {loss} needs one label per row; got lists of labels")
    highest = max(map(_highest, surveys))
    found = [highest] if highest >= 0 else []
    lists = LabelLists(np.array([0, len(found)]), np.array(found, np.int32))
    hint = max(each.classes_hint for each in surveys)
    return RawSet(NO_INPUTS, 0, None, lists, shown(folder), classes_hint=hint)


def frequencies(
    surveys: Sequence[PartSurvey], encoding: Encoding, fractions: Fractions, seed: int
) -> NDArray[np.int64] | None:
    """The number of training rows that have each label [C]; None unless labels are lists."""
    if encoding.kind != "multilabel":
        return None
    total = np.zeros(encoding.outputs, np.int64)
    for each in surveys:
        if isinstance(each.labels, ListedLabels):
            total += each.labels.frequencies(encoding.outputs)
        else:
            sets = split_part(each.part.rows, fractions, seed, each.part.number)
            training = sets["train"]
            labels = label_lists(_single(each, each.labels)).indices
            own = labels if training is None else labels[training]
            total += np.bincount(own, minlength=encoding.outputs)
    return total


def _highest(survey: PartSurvey) -> int:
    """The highest label in lists, or -1; DataError if single labels are not whole numbers >= 0."""
    if isinstance(survey.labels, ListedLabels):
        return survey.labels.highest
    return int(label_lists(_single(survey, survey.labels)).indices.max())


def _single(survey: PartSurvey, labels: SingleLabels) -> RawSet:
    """The labels of one part, without inputs."""
    source = shown(survey.part.path)
    return RawSet(NO_INPUTS, 0, labels.array(), None, source, label_names=labels.names)


def _joined_single(folder: Path, surveys: Sequence[PartSurvey]) -> JoinedLabels:
    """The labels of all rows, with the names of all parts if they are text or boolean."""
    each = [survey.labels for survey in surveys if isinstance(survey.labels, SingleLabels)]
    for survey, labels in zip(surveys, each, strict=True):
        if (found := _type(labels)) != (expected := _type(each[0])):
            raise DataError(
                f"{shown(survey.part.path)}: expected labels of the same type in all files; got "
                f"{found} here, and {expected} in {shown(surveys[0].part.path)}"
            )
    names = sorted({name for labels in each for name in labels.names})
    values = [labels.array() for labels in each]
    if names:
        indices = {name: index for index, name in enumerate(names)}
        values = [
            np.array([indices[name] for name in labels.names], np.float64)[own.astype(np.intp)]
            for labels, own in zip(each, values, strict=True)
        ]
    parts = tuple((shown(survey.part.path), survey.part.rows) for survey in surveys)
    return JoinedLabels(
        NO_INPUTS,
        0,
        np.concatenate(values),
        None,
        shown(folder),
        label_names=tuple(names),
        parts=parts,
    )


def _type(labels: SingleLabels) -> str:
    if not labels.names:
        return "numbers"
    return "booleans" if isinstance(labels.names[0], bool) else "text"
