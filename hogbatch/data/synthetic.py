"""Synthetic extreme classification data: sparse rows with many labels, of any size, seeded.

Each label has a prototype: a list of features, of which the first are drawn most often. Labels
belong to topics, and each topic has its own ranking of the features. Prototypes are drawn from that
ranking by Zipf's law, so labels of a topic share its common features and differ in its rare ones. A
row draws its labels from one topic, features from the prototypes of its labels, and additional
noise features that are independent of the labels. Topics, labels and noise follow Zipf's law.
Values are TF-IDF, and rows are normalized to length 1.

Without topics, the labels of a large set have nothing in common, and a network learns none of them
for a long time; equally frequent topics are learned all at the same time. With topics by Zipf's
law, the network learns one topic after another, and then the labels within topics.

    python -m hogbatch.data.synthetic OUT_DIR --labels 100000 --rows 100000

writes OUT_DIR/synthetic-train.xmc and OUT_DIR/synthetic-test.xmc.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.values import (
    FRACTION,
    INT64,
    INTEGER,
    NON_NEGATIVE,
    NUMBER,
    Constraint,
    ValueType,
)
from hogbatch.data.batch import Examples, Inputs, Labels, csr_inputs, multi_labels
from hogbatch.data.raw import MAX_INDEX
from hogbatch.errors import UsageError

Number = TypeVar("Number", int, float)

BLOCK_ROWS: Final = 1 << 14  # drawn or written at a time, to limit temporary memory
COUNT: Final = Constraint("from 1 to 2^31 - 2", lambda value: 1 <= value <= MAX_INDEX)
UP_TO_A_MILLION: Final = Constraint("from 1 to 10^6", lambda value: 1 <= value <= 1e6)


def _setting(default: Number, check: Constraint, about: str) -> Number:
    """A dataclass field with its check and help text."""
    return field(default=default, metadata={"check": check, "about": about})


@dataclass(frozen=True, slots=True)
class SyntheticSettings:
    """Parameters of the generated data; UsageError for a value out of range."""

    features: int = _setting(135_909, COUNT, "number of features, F")
    labels: int = _setting(100_000, COUNT, "number of labels, C")
    rows: int = _setting(100_000, COUNT, "number of training rows")
    test_rows: int = _setting(10_000, COUNT, "number of test rows, with the same prototypes")
    seed: int = _setting(0, INT64, "random seed")
    labels_per_row: float = _setting(6.0, UP_TO_A_MILLION, "mean number of labels drawn per row")
    features_per_row: float = _setting(
        75.0, UP_TO_A_MILLION, "mean number of features drawn per row"
    )
    topics: int = _setting(
        100, COUNT, "number of groups of labels that share features; each row has one topic"
    )
    prototype: int = _setting(30, UP_TO_A_MILLION, "number of features per label")
    noise: float = _setting(0.25, FRACTION, "fraction of noise among the features drawn per row")
    topic_skew: float = _setting(1.0, NON_NEGATIVE, "exponent of Zipf's law for topics")
    label_skew: float = _setting(0.5, NON_NEGATIVE, "exponent of Zipf's law for labels")
    feature_skew: float = _setting(
        1.0, NON_NEGATIVE, "exponent of Zipf's law for features in noise and prototypes"
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            kind, check = _kind(each), each.metadata["check"]
            value = getattr(self, each.name)
            try:
                held = check.accepts(kind.from_value(value))
            except ValueError:
                held = False
            if not held:
                raise UsageError(
                    f"{each.name}: expected {kind.expected} {check.expected}; got {value!r}"
                )


def _kind(setting: Field[object]) -> ValueType:
    return INTEGER if isinstance(setting.default, int) else NUMBER


class Distributions(NamedTuple):
    """Distributions of both training and test rows. Fractions are cumulative and end at 1."""

    labels: NDArray[np.int32]  # [C], sorted by topic
    label_fractions: NDArray[np.float64]  # [C]
    topic_fractions: NDArray[np.float64]  # [topics + 1], the first is 0
    prototypes: NDArray[np.int32]  # [C, features per label], most frequent first
    prototype_fractions: NDArray[np.float64]  # [features per label]
    features: NDArray[np.int32]  # [F], most frequent noise first
    feature_fractions: NDArray[np.float64]  # [F]


class CountedCsr(NamedTuple):
    """Distinct columns of N rows in CSR form, with the number of times each was drawn."""

    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]  # [n], ascending within a row
    times: NDArray[np.float32]  # [n]


def generate(settings: SyntheticSettings) -> tuple[Examples, Examples]:
    """Generate training and test rows: CSR inputs with label lists, at least one of each per row.

    Each set has its own stream of random numbers: the number of rows of one set does not affect the
    other, except that document frequencies are computed from the training rows.
    """
    streams = map(np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(3))
    distributions = _draw_distributions(settings, next(streams))
    train, train_labels = _draw(settings, settings.rows, distributions, next(streams))
    test, test_labels = _draw(settings, settings.test_rows, distributions, next(streams))
    found = np.bincount(train.indices, minlength=settings.features)
    rarity = (1 + np.log((1 + settings.rows) / (1 + found))).astype(np.float32)
    return (
        Examples(_tf_idf(train, rarity), train_labels, settings.features),
        Examples(_tf_idf(test, rarity), test_labels, settings.features),
    )


def _draw_distributions(settings: SyntheticSettings, random: np.random.Generator) -> Distributions:
    topics = _ranks(_zipf(settings.topics, settings.topic_skew), settings.labels, random)
    by_topic = np.argsort(topics, kind="stable")
    fractions = random.permutation(
        np.diff(_zipf(settings.labels, settings.label_skew), prepend=0.0)
    )
    label_fractions = np.cumsum(fractions[by_topic])
    label_fractions /= label_fractions[-1]
    first_of_topic = np.searchsorted(topics[by_topic], np.arange(settings.topics + 1))
    features = random.permutation(np.arange(settings.features, dtype=np.int32))
    feature_fractions = _zipf(settings.features, settings.feature_skew)
    return Distributions(
        labels=by_topic.astype(np.int32),
        label_fractions=label_fractions,
        topic_fractions=np.concatenate([[0.0], label_fractions])[first_of_topic],
        prototypes=_prototypes(settings, topics, features, feature_fractions, random),
        prototype_fractions=_zipf(settings.prototype, settings.feature_skew),
        features=features,
        feature_fractions=feature_fractions,
    )


def _prototypes(
    settings: SyntheticSettings,
    topics: NDArray[np.int64],
    features: NDArray[np.int32],
    feature_fractions: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.int32]:
    """Draw the features of every label from the ranking of its topic, topics[C].

    All topics rank the features in the same circular order, each with its own start.
    """
    starts = random.integers(settings.features, size=settings.topics)
    prototypes = np.empty((settings.labels, settings.prototype), np.int32)
    for first in range(0, settings.labels, BLOCK_ROWS):
        block = prototypes[first : first + BLOCK_ROWS]
        ranks = _ranks(feature_fractions, block.size, random).reshape(block.shape)
        ranks += starts[topics[first : first + BLOCK_ROWS], None]
        block[:] = features[ranks % settings.features]
    return prototypes


def _zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Cumulative fractions of `count` items, with the nth proportional to 1 / n^exponent."""
    fractions: NDArray[np.float64] = np.cumsum(np.arange(1.0, count + 1) ** -exponent)
    fractions /= fractions[-1]
    return fractions


def _ranks(
    fractions: NDArray[np.float64], count: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw `count` numbers below M with cumulative probabilities fractions[M]."""
    return np.searchsorted(fractions, random.random(count), side="right")


def _draw(
    settings: SyntheticSettings,
    rows: int,
    distributions: Distributions,
    random: np.random.Generator,
) -> tuple[CountedCsr, Labels]:
    """Draw labels and features of `rows` rows."""
    blocks = [
        _draw_block(settings, min(BLOCK_ROWS, rows - start), distributions, random)
        for start in range(0, rows, BLOCK_ROWS)
    ]
    features, labels = map(_joined, zip(*blocks, strict=True))
    return features, multi_labels(labels.indptr, labels.indices)


def _draw_block(
    settings: SyntheticSettings,
    rows: int,
    distributions: Distributions,
    random: np.random.Generator,
) -> tuple[CountedCsr, CountedCsr]:
    """Draw the features and labels of a block of rows."""
    row_of = np.repeat(np.arange(rows), 1 + random.poisson(settings.labels_per_row - 1, rows))
    topic = np.searchsorted(distributions.topic_fractions, random.random(rows), side="right")[
        row_of
    ]
    first, last = distributions.topic_fractions[topic - 1], distributions.topic_fractions[topic]
    fraction = first + random.random(len(row_of)) * (last - first)
    fraction = np.minimum(fraction, np.nextafter(last, 0))  # if rounded into the next topic
    names = distributions.labels[
        np.searchsorted(distributions.label_fractions, fraction, side="right")
    ]
    labels = _distinct(rows, row_of, names, settings.labels)

    row_of = np.repeat(np.arange(rows), 1 + random.poisson(settings.features_per_row - 1, rows))
    count = len(row_of)
    of_row = random.random(count) * np.diff(labels.indptr)[row_of]
    label = labels.indices[labels.indptr[row_of] + of_row.astype(np.int64)]
    columns = distributions.prototypes[
        label, _ranks(distributions.prototype_fractions, count, random)
    ]
    noisy = np.flatnonzero(random.random(count) < settings.noise)
    columns[noisy] = distributions.features[
        _ranks(distributions.feature_fractions, len(noisy), random)
    ]
    return _distinct(rows, row_of, columns, settings.features), labels


def _distinct(
    rows: int, row_of: NDArray[np.int64], columns: NDArray[np.int32], width: int
) -> CountedCsr:
    """Group columns[n], all below `width`, by row and count repeated columns."""
    cells, times = np.unique(row_of * width + columns, return_counts=True)
    starts = np.arange(rows + 1) * width
    indptr = np.searchsorted(cells, starts)
    indices = cells - np.repeat(starts[:-1], np.diff(indptr))
    return CountedCsr(indptr, indices.astype(np.int32), times.astype(np.float32))


def _joined(lists: Sequence[CountedCsr]) -> CountedCsr:
    """Concatenate the rows of all `lists`."""
    counts = np.concatenate([[0], *(np.diff(each.indptr) for each in lists)])
    return CountedCsr(
        np.cumsum(counts, dtype=np.int64),
        np.concatenate([each.indices for each in lists]),
        np.concatenate([each.times for each in lists]),
    )


def _tf_idf(drawn: CountedCsr, rarity: NDArray[np.float32]) -> Inputs:
    """(1 + log times) * rarity[F], with rows normalized to length 1; overwrites `drawn.times`."""
    values = np.log(drawn.times, out=drawn.times)
    values += 1
    values *= rarity[drawn.indices]
    length = np.sqrt(np.add.reduceat(values * values, drawn.indptr[:-1]))
    values /= np.repeat(length, np.diff(drawn.indptr))
    return csr_inputs(drawn.indptr, drawn.indices, values)


def write_xmc(examples: Examples, labels: int, path: Path) -> None:
    """Write rows as XMC text, compressed if the name ends in .gz; reading restores them exactly.

    `labels` is C, which the lists do not contain. UsageError for dense rows, for single labels
    instead of lists, and for a file that cannot be written.
    """
    if not examples.sparse or not len(examples.labels.indptr):
        raise UsageError(
            f"{path}: XMC text requires sparse rows with lists of labels; got other rows"
        )
    try:
        with gzip.open(path, "wb", 6) if path.suffix == ".gz" else path.open("wb") as file:
            file.write(f"{examples.rows} {examples.features} {labels}\n".encode())
            for start in range(0, examples.rows, BLOCK_ROWS):
                lines = _lines(examples, start, min(start + BLOCK_ROWS, examples.rows))
                file.write("".join(lines).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _lines(examples: Examples, start: int, stop: int) -> Iterator[str]:
    """Yield rows [start, stop) as text. Nine digits represent every float32 exactly."""
    inputs, labels = examples.inputs, examples.labels
    for row in range(start, stop):
        first, last = labels.indptr[row], labels.indptr[row + 1]
        names = ",".join(map(str, labels.indices[first:last].tolist()))
        first, last = inputs.indptr[row], inputs.indptr[row + 1]
        cells = zip(
            inputs.indices[first:last].tolist(), inputs.values[first:last].tolist(), strict=True
        )
        yield f"{names} {' '.join(f'{index}:{value:.9g}' for index, value in cells)}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hogbatch.data.synthetic",
        description="Write synthetic extreme classification data as XMC text.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "out_dir", type=Path, metavar="OUT_DIR", help="output directory, created if missing"
    )
    parser.add_argument(
        "--name", default="synthetic", help="prefix of the files NAME-train.xmc and NAME-test.xmc"
    )
    parser.add_argument(
        "--gzip", action="store_true", help="write compressed files, NAME-train.xmc.gz"
    )
    for each in fields(SyntheticSettings):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=type(each.default),
            default=each.default,
            metavar="N" if _kind(each) is INTEGER else "X",
            help=each.metadata["about"],
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate and write both files; return the exit code. Errors are reported on stderr."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    try:
        settings = SyntheticSettings(
            **{each.name: options[each.name] for each in fields(SyntheticSettings)}
        )
        try:
            options["out_dir"].mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot create the folder {options['out_dir']}: {error.strerror}"
            raise UsageError(reason) from None
        suffix = ".xmc.gz" if options["gzip"] else ".xmc"
        for part, examples in zip(("train", "test"), generate(settings), strict=True):
            path = options["out_dir"] / f"{options['name']}-{part}{suffix}"
            write_xmc(examples, settings.labels, path)
            print(path)
    except UsageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
