"""Data that are divided into files are the same data as those of one file."""

from itertools import pairwise
from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.cluster.divided import reading
from hogbatch.cluster.divided.reading import ServerRows, read_part, sizes_of
from hogbatch.cluster.divided.records import files_in
from hogbatch.data.load import load, split_rows
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions
from hogbatch.data.sizes import SetSizes
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from tests.unit.cluster.divided.folders import (
    WRITERS,
    contents,
    divided,
    pieces_of,
    sorted_rows,
    write_csv,
    write_svm,
)

ROWS, FEATURES = 60, 7
LABELS = {
    "binary": lambda random: random.integers(0, 2, ROWS).tolist(),
    "classes": lambda random: (random.integers(0, 4, ROWS) * 2).tolist(),
    "real": lambda random: random.normal(100, 7, ROWS).round(3).tolist(),
    "multilabel": lambda random: [
        sorted(set(random.integers(0, 40, random.integers(1, 4)).tolist())) for _ in range(ROWS)
    ],
}


def rows_of(kind, seed):
    """Random rows in which the last features are rare, with labels of a kind."""
    random = np.random.default_rng(seed)
    scale = np.array([1, 30, 0.01, 1, 5, 1, 1])
    values = (random.normal(3, 1, (ROWS, FEATURES)) * scale).astype(np.float32).round(4)
    values[random.random(values.shape) < np.linspace(0.1, 0.95, FEATURES)] = 0
    values[0, [0, -1]] = 1  # the first and the last feature occur
    return values, LABELS[kind](random)


def write_parts(write, folder, values, labels, seed):
    """Write a file with all rows, and a folder with the same rows in files of random sizes."""
    cuts = np.random.default_rng(seed).choice(np.arange(1, ROWS), 3, replace=False)
    parts = folder / "parts"
    parts.mkdir()
    for number, (start, stop) in enumerate(pairwise([0, *sorted(cuts), ROWS])):
        write(parts / f"part-{number}", values[start:stop], labels[start:stop])
    write(folder / "all", values, labels)
    return parts, next(folder.glob("all.*"))


@pytest.mark.parametrize(
    ("form", "kind", "scale"),
    [
        *(("svm", "binary", "auto"), ("svm", "classes", "max"), ("svm", "real", "none")),
        *(("csv", "binary", "max"), ("csv", "classes", "standard"), ("csv", "real", "auto")),
        *(("sparse npz", "binary", "none"), ("sparse npz", "real", "max")),
        *(("svm", "multilabel", "max"), ("xmc", "multilabel", "auto")),
    ],
)
def test_parts_have_the_rows_of_one_file(tmp_path, form, kind, scale):
    seed = len(form) + len(kind) + len(scale)
    values, labels = rows_of(kind, seed)
    folder, whole = write_parts(WRITERS[form], tmp_path, values, labels, seed)
    expected, data = load(whole, fractions=Fractions(0), scale=scale), divided(folder, scale=scale)
    assert data.encoding.kind == kind
    assert data.encoding.classes == expected.encoding.classes
    assert data.encoding.outputs == expected.encoding.outputs
    assert data.encoding.offset == pytest.approx(expected.encoding.offset, rel=1e-12)
    assert data.encoding.scale == pytest.approx(expected.encoding.scale, rel=1e-12)
    assert (data.scaler is None) == (expected.scaler is None)
    if data.scaler is not None:
        assert_allclose(data.scaler.mean, expected.scaler.mean, rtol=1e-12, atol=1e-14)
        assert_allclose(data.scaler.scale, expected.scaler.scale, rtol=1e-12)
    assert (data.index_base, data.columns) == (expected.index_base, expected.columns)
    assert data.train_sizes == expected.train_sizes
    assert "test" not in data.set_sizes
    assert data.mean_square == pytest.approx(expected.mean_square, rel=1e-5)
    if kind == "multilabel":
        found, counts = data.label_frequencies, expected.label_frequencies
        assert (found.rows, found.of_label.tolist()) == (counts.rows, counts.of_label.tolist())
    else:
        assert data.label_frequencies is None
    assert data.notes[-1:] == expected.notes[-1:]
    found = sorted_rows([piece["train"] for piece in pieces_of(data)])
    known = sorted_rows([expected.train])
    assert_allclose(found[0], known[0], rtol=1e-5, atol=1e-6)
    assert found[1] == known[1]


@pytest.mark.parametrize(
    ("form", "kind", "test_fraction"),
    [
        ("csv", "real", 0.0),
        ("csv", "binary", 0.3),
        ("svm", "classes", 0.3),
        ("xmc", "multilabel", 0.3),
    ],
)
def test_a_segment_is_filled_part_by_part(tmp_path, form, kind, test_fraction):
    def expect_joined(examples, sizes, parts):
        each = [contents(part) for part in parts]
        values, labels = contents(examples)
        assert examples.sizes == sizes
        assert np.array_equal(values, np.concatenate([values for values, _ in each]))
        assert labels == [label for _, labels in each for label in labels]

    values, labels = rows_of(kind, 2)
    folder, _ = write_parts(WRITERS[form], tmp_path, values, labels, 2)
    data = divided(folder, fractions=Fractions(test_fraction, test_fraction))
    own = (data.parts[3], data.parts[0])  # of one server
    sizes = sizes_of(own)
    segment = Segment.create("data", arrange(dataset.fields(sizes)))
    pieces = [pieces_of(data)[number] for number in (3, 0)]
    dataset.fill(segment, iter(pieces))
    found = dataset.sets_of(segment, FEATURES)
    assert found.keys() == sizes.keys() == pieces[0].keys()
    assert ("test" in sizes) == ("validation" in sizes) == (test_fraction > 0)
    for name in found:
        expect_joined(found[name], sizes[name], [each[name] for each in pieces])
    segment.close()


def test_statistics_and_frequencies_are_those_of_the_training_rows(tmp_path):
    values, labels = rows_of("multilabel", 3)
    folder, _ = write_parts(write_svm, tmp_path, values, labels, 3)
    data = divided(folder, fractions=Fractions(0.4), scale="max")
    assert data.train_sizes.rows + data.set_sizes["test"].rows == ROWS
    assert data.set_sizes["test"].rows == sum(int(0.4 * part.rows) for part in data.parts)
    first, second = (split_rows(100, Fractions(0.4), (5, part))["test"].tolist() for part in (0, 1))
    assert first != second, "each part is split in its own way"
    trained = [piece["train"] for piece in pieces_of(data)]
    largest = max(np.abs(contents(each)[0]).max(axis=0).max() for each in trained)
    assert largest == pytest.approx(1)
    listed = np.concatenate([each.labels.indices for each in trained])
    counts = np.bincount(listed, minlength=data.encoding.outputs)
    assert data.label_frequencies.of_label.tolist() == counts.tolist()
    squares = sum(np.square(each.inputs.values).sum() for each in trained)
    assert data.mean_square == pytest.approx(squares / data.train_sizes.rows, rel=1e-5)
    sizes = SetSizes.sum((each.sizes for each in trained), FEATURES)
    assert data.train_sizes == sizes


def test_a_file_whose_rows_have_one_label_each_belongs_to_lists_of_labels(tmp_path):
    (tmp_path / "a.svm").write_text("0,2 1:1\n1 2:1\n")
    (tmp_path / "b.svm").write_text("3 1:1\n3 3:1\n0 1:2\n")
    data = divided(tmp_path)
    assert (data.encoding.kind, data.encoding.outputs) == ("multilabel", 4)
    assert data.label_frequencies.of_label.tolist() == [2, 1, 1, 2]
    pieces = pieces_of(data)
    assert [contents(piece["train"])[1] for piece in pieces] == [[[0, 2], [1]], [[3], [3], [0]]]
    assert data.train_sizes == SetSizes.sum((piece["train"].sizes for piece in pieces), 3)


def test_single_labels_become_lists_if_the_loss_needs_them(tmp_path):
    (tmp_path / "a.svm").write_text("0 1:1\n1 2:1\n2 2:1\n3 1:1\n")
    (tmp_path / "b.svm").write_text("4 1:1\n3 3:1\n")
    data = divided(tmp_path, loss="multilabel", fractions=Fractions(0.5))
    trained = [piece["train"] for piece in pieces_of(data)]
    assert data.train_sizes == SetSizes.sum((each.sizes for each in trained), 3)
    listed = np.concatenate([each.labels.indices for each in trained])
    assert data.label_frequencies.of_label.tolist() == np.bincount(listed, minlength=5).tolist()


def test_the_features_of_sparse_rows_may_be_declared(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n")
    (tmp_path / "b.svm").write_text("1 3:5\n-1 2:1\n")
    options = ReadOptions(declared=9)
    data = divided(tmp_path, options, scale="max")
    assert data.train_sizes.features == len(data.scaler.mean) == 9
    assert [piece["train"].features for piece in pieces_of(data, options)] == [9, 9]


def test_one_class_in_each_file_is_enough(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n1 2:1\n")
    (tmp_path / "b.svm").write_text("-1 1:1\n")
    data = divided(tmp_path)
    assert (data.encoding.kind, data.encoding.classes) == ("binary", (-1.0, 1.0))
    assert [piece["train"].labels.values.tolist() for piece in pieces_of(data)] == [[1, 1], [0]]


def test_text_labels_of_files_are_numbered_together(tmp_path):
    for name, labels in (("a", ["oak", "fir"]), ("b", ["pine", "oak"]), ("c", ["elm", "elm"])):
        np.savez(tmp_path / f"{name}.npz", X=np.eye(2, 3), y=np.array(labels))
    data = divided(tmp_path)
    assert data.encoding.classes == ("elm", "fir", "oak", "pine")
    found = [piece["train"].labels.values.tolist() for piece in pieces_of(data)]
    assert found == [[2, 1], [3, 2], [0, 0]]


def test_the_fingerprint_depends_on_rows_and_options_but_not_on_the_folder(tmp_path):
    values, labels = rows_of("real", 4)

    def fingerprint(name, rows, **options):
        folder = tmp_path / name
        folder.mkdir()
        write_csv(folder / "0", rows[:20], labels[:20])
        write_csv(folder / "1", rows[20:], labels[20:])
        return divided(folder, **options).fingerprint

    first = fingerprint("first", values)
    assert len(first) == 32
    assert first == fingerprint("second", values)
    changed = values.copy()
    changed[30, 2] += 1
    others = [
        fingerprint("changed", changed),
        fingerprint("split", values, fractions=Fractions(0.2)),
        fingerprint("seed", values, fractions=Fractions(0.2), seed=1),
        fingerprint("scale", values, scale="none"),
    ]
    assert len({first, *others}) == 5


def test_only_one_part_is_in_memory_while_a_segment_is_filled(tmp_path, monkeypatch):
    values, labels = rows_of("real", 6)
    folder, _ = write_parts(write_csv, tmp_path, values, labels, 6)
    data, alive = divided(folder), []

    def watched(*arguments):
        assert not any(reference() for reference in alive)
        piece = read_part(*arguments)
        alive.append(ref(piece["train"].inputs.dense))
        return piece

    monkeypatch.setattr(reading, "read_part", watched)
    files = files_in(data.segment())
    ServerRows(files, range(len(files.parts))).read(ReadOptions(), cache=None).close()
    assert len(alive) == 4
