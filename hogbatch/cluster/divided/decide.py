"""Facts that a run on divided data derives from the surveys of all parts."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import structs

from hogbatch.cluster.divided.reading import sizes_of, survey_held_out
from hogbatch.cluster.divided.records import (
    DividedFiles,
    ListedLabels,
    Part,
    PartReading,
    PartSurvey,
    SingleLabels,
    segment_of,
)
from hogbatch.config.losses import encodings_for
from hogbatch.config.sets import SetName
from hogbatch.data.batch import dense_inputs
from hogbatch.data.cache import DataCache
from hogbatch.data.digest import of_arrays
from hogbatch.data.encode import Encoding, comparable, explain, infer_encoding, label_lists
from hogbatch.data.facts import Frequencies
from hogbatch.data.load import split_rows
from hogbatch.data.order import Fractions
from hogbatch.data.raw import Columns, LabelLists, RawSet, ReadOptions
from hogbatch.data.scale import ColumnMoments, Scaler, scaler_for
from hogbatch.data.sizes import SetSizes
from hogbatch.data.source import shown
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted
from hogbatch.run.segments import DataOfServers
from hogbatch.store.segment import Segment

SAME: Final = "expected the same columns in the same order in all files"


@dataclass(frozen=True, kw_only=True)
class DividedData(DataOfServers):
    """The data of a run in several files, without the rows; only numbers are read of tables."""

    parts: tuple[Part, ...]  # by number
    reading: PartReading  # how they are read
    mean_square: float  # over the training rows, of the squared norm of their scaled features
    label_frequencies: Frequencies | None  # training rows with each label, or None
    held_out: tuple[Part, ...] = ()  # sets in files of their own

    @cached_property
    def set_sizes(self) -> Mapping[SetName, SetSizes]:
        return sizes_of([*self.parts, *self.held_out])

    def segment(self) -> Segment:
        """The files, which servers read."""
        return segment_of(DividedFiles(self.parts, self.held_out, self.reading))


def decide(
    folder: Path,
    surveys: Sequence[PartSurvey],
    *,
    loss: str = "auto",
    scale: str = "auto",
    fractions: Fractions,
    seed: int,
) -> DividedData:
    """Choose encoding and scaler for all parts of `folder`, as `load` does for one file.

    `fractions` and `seed` are those of the surveys, and `loss` and `scale` those of `load`.
    DataError names the first file that does not fit to the others.
    """
    surveys = sorted(surveys, key=lambda each: each.part.number)
    _expect_same_form(surveys)
    sparse = surveys[0].part.train.sparse
    features = max(each.part.train.features for each in surveys)
    if not features:
        raise DataError(f"{shown(folder)}: no row has a feature")
    labels = joined_labels(folder, surveys, loss)
    encoding = infer_encoding(labels, loss)
    moments = reduce(ColumnMoments.merged, (each.moments.restored(features) for each in surveys))
    scaler, scale_note = scaler_for(scale, moments.statistics, sparse=sparse)
    kind_note = explain(labels, encoding) if loss == "auto" else None
    reading = PartReading(
        index_base=surveys[0].index_base,
        columns=surveys[0].columns,
        features=features,
        sparse=sparse,
        encoding=encoding,
        stored_scaler=None if scaler is None else (scaler.mean.tobytes(), scaler.scale.tobytes()),
        fractions=fractions,
        seed=seed,
    )
    parts = tuple(_encoded(each.part, encoding, features) for each in surveys)
    return DividedData(
        parts=parts,
        reading=reading,
        encoding=encoding,
        scaler=scaler,
        index_base=reading.index_base,
        columns=reading.columns,
        mean_square=moments.mean_square(scaler),
        label_frequencies=frequencies(surveys, encoding, fractions, seed),
        fingerprint=_fingerprint(parts, reading, scaler),
        skipped=sum(each.skipped for each in surveys),
        notes=(*_messages(surveys), *filter(None, [kind_note, scale_note])),
    )


def with_held_out(
    data: DividedData, name: SetName, path: Path, options: ReadOptions, cache: DataCache | None
) -> DividedData:
    """`data` with the file of set `name`, for which no rows of the parts are split off."""
    assert name not in data.set_sizes, "parts are surveyed with fraction 0"
    file, raw = survey_held_out(name, path, data.reading, options, cache)
    digest = of_arrays(f"{data.fingerprint} {name} {file.digest.hex()}", ())
    return replace(
        data,
        held_out=(*data.held_out, file),
        fingerprint=digest.hexdigest(),
        skipped=data.skipped + raw.skipped.total,
        notes=(*data.notes, *raw.messages),
    )


def _encoded(part: Part, encoding: Encoding, features: int) -> Part:
    """`part` with the sizes of its arrays after encoding."""

    def sizes(set_sizes: SetSizes) -> SetSizes:
        set_sizes = replace(set_sizes, features=features)
        if encoding.kind != "multilabel" or set_sizes.lists:
            return set_sizes
        return replace(set_sizes, lists=True, listed=set_sizes.rows, max_listed=1)

    return structs.replace(part, sets={name: sizes(each) for name, each in part.sets.items()})


def _fingerprint(parts: Sequence[Part], reading: PartReading, scaler: Scaler | None) -> str:
    """Digest of what determines the rows and their order; not of paths, which may change."""
    described = (
        reading.features,
        comparable(reading.encoding),
        reading.fractions,
        reading.seed,
        [part.digest.hex() for part in parts],
    )
    arrays = () if scaler is None else (scaler.mean, scaler.scale)
    return of_arrays(repr(described), arrays).hexdigest()


def _messages(surveys: Sequence[PartSurvey]) -> list[str]:
    """Messages about the files; one about several files names only the first of them."""
    files = dict[str, list[str]]()
    for each in surveys:
        for note in each.notes:
            files.setdefault(note, []).append(shown(each.part.path))
    messages = []
    for note, (first, *others) in files.items():
        more = f" and {len(others)} more" if others else ""
        messages.append(f"{first}{more}: {note}")
    return [*messages, *(line for each in surveys for line in each.skipped_lines)]


def _expect_same_form(surveys: Sequence[PartSurvey]) -> None:
    """DataError for the first file whose rows have another form than those of the first file."""
    first = surveys[0]
    for other in surveys[1:]:
        if difference := _difference(first, other):
            raise DataError(f"{shown(other.part.path)}: {difference}")


def _difference(first: PartSurvey, other: PartSurvey) -> str | None:
    """The difference between `other` and `first`, with advice; None if there is none."""
    file = shown(first.part.path)
    expected, found = first.part.train, other.part.train
    if expected.sparse != found.sparse:
        forms = {True: "sparse", False: "dense"}
        return (
            f"expected {forms[expected.sparse]} rows, as in {file}; got {forms[found.sparse]} "
            "rows; use one format for all files"
        )
    if first.index_base != other.index_base and None not in (first.index_base, other.index_base):
        return (
            f"features are counted from {other.index_base}, but from {first.index_base} in {file}, "
            "as far as their rows show; give --index-base"
        )
    if first.index_base != other.index_base:
        return f"expected the format of {file}, in which features are counted in the same way"
    if (first.columns.names == ()) != (other.columns.names == ()):
        has, lacks = ("a header", "none") if other.columns.names else ("no header", "one")
        return f"{has}, but {file} has {lacks}; use the same in all files, or give --header"
    if not expected.sparse and expected.features != found.features:
        return f"expected {expected.features} features, as in {file}; got {found.features}"
    return _column_difference(first.columns, other.columns, file)


def _column_difference(expected: Columns, found: Columns, file: str) -> str | None:
    for index, (name, own) in enumerate(zip(expected.names, found.names, strict=True)):
        if name != own:
            return (
                f"feature {index} (from 0) is {quoted(own)}, but {quoted(name)} in {file}; {SAME}"
            )
    if expected != found:
        return f"the label is {_label(found)}, but {_label(expected)} in {file}; {SAME}"
    return None


def _label(columns: Columns) -> str:
    name = "" if columns.label is None else f" ({quoted(columns.label)})"
    return f"column {columns.position}{name}"


NO_INPUTS: Final = dense_inputs(np.empty((0, 0), np.float32))


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
) -> Frequencies | None:
    """The number of training rows that have each label; None unless labels are lists."""
    if encoding.kind != "multilabel":
        return None
    total = np.zeros(encoding.outputs, np.int64)
    for each in surveys:
        if isinstance(each.labels, ListedLabels):
            total += each.labels.frequencies(encoding.outputs)
        else:
            sets = split_rows(each.part.rows, fractions, (seed, each.part.number))
            training = sets["train"]
            labels = label_lists(_single(each, each.labels)).indices
            own = labels if training is None else labels[training]
            total += np.bincount(own, minlength=encoding.outputs)
    return Frequencies(sum(each.part.train.rows for each in surveys), total)


def _highest(survey: PartSurvey) -> int:
    """The highest label in lists, or -1; DataError if single labels are not whole numbers >= 0."""
    if isinstance(survey.labels, ListedLabels):
        return survey.labels.highest
    return int(label_lists(_single(survey, survey.labels)).indices.max())


def _single(survey: PartSurvey, labels: SingleLabels) -> RawSet:
    """The labels of one part, without inputs."""
    source = shown(survey.part.path)
    return RawSet(NO_INPUTS, 0, labels.array(), None, source, label_names=labels.names)


def _joined_single(folder: Path, surveys: Sequence[PartSurvey]) -> RawSet:
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
    starts = list(accumulate((survey.part.rows for survey in surveys), initial=0))

    def locate(row: int) -> str:
        part = bisect_right(starts, row) - 1
        return f"{shown(surveys[part].part.path)}: row {row - starts[part]}"

    joined, source = np.concatenate(values), shown(folder)
    return RawSet(NO_INPUTS, 0, joined, None, source, label_names=tuple(names), locator=locate)


def _type(labels: SingleLabels) -> str:
    if not labels.names:
        return "numbers"
    return "booleans" if isinstance(labels.names[0], bool) else "text"
