import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hogbatch.data import synthetic
from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, multi_labels, single_labels
from hogbatch.data.csr import rows_of
from hogbatch.data.synthetic import SyntheticSettings, generate, main, write_xmc
from hogbatch.errors import UsageError
from tests.support.reading import read

SMALL = SyntheticSettings(
    features=500, labels=200, rows=1500, test_rows=400, features_per_row=30.0, topics=20
)


def arrays(examples):
    return (*examples.inputs[1:], *examples.labels[1:])


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(arrays(one), arrays(other), strict=True))


def read_back(path):
    raw = read(path)
    return Examples(raw.inputs, multi_labels(*raw.label_lists), raw.features)


@pytest.fixture(scope="module")
def small():
    return generate(SMALL)


def test_rows_are_distinct_sorted_lists_with_values_of_length_one(small):
    for examples, rows in zip(small, (1500, 400), strict=True):
        assert (examples.rows, examples.features) == (rows, 500)
        dtypes = [array.dtype for array in arrays(examples)]
        assert dtypes == [np.int64, np.int32, np.float32, np.int64, np.int32]
        for (indptr, indices), width in ((examples.inputs[1:3], 500), (examples.labels[1:3], 200)):
            assert indptr[0] == 0 and indptr[-1] == len(indices)
            assert (np.diff(indptr) >= 1).all()
            places = rows_of(indptr) * width + indices
            assert (np.diff(places) > 0).all() and 0 <= indices.min() <= indices.max() < width
        assert (examples.inputs.values > 0).all()
        squares = np.add.reduceat(examples.inputs.values**2, examples.inputs.indptr[:-1])
        assert squares == pytest.approx(np.ones(examples.rows), abs=1e-5)


def test_a_value_is_tf_idf():
    times = np.array([1, 4], np.float32)
    drawn = synthetic.CountedCsr(np.array([0, 2]), np.array([3, 5], np.int32), times)
    values = synthetic._tf_idf(drawn, np.arange(6, dtype=np.float32)).values
    assert values[1] / values[0] == pytest.approx(5 * (1 + np.log(4)) / 3)


def test_the_seed_decides_and_the_rows_of_one_set_do_not_change_the_other(small):
    assert all(map(same, small, generate(SMALL)))
    assert not any(map(same, small, generate(replace(SMALL, seed=1))))
    assert same(generate(replace(SMALL, test_rows=7))[0], small[0])
    test = generate(replace(SMALL, rows=3))[1]  # values depend on the training rows
    assert np.array_equal(test.inputs.indices, small[1].inputs.indices)
    assert np.array_equal(test.labels.indices, small[1].labels.indices)


def test_blocks_are_put_together_in_order(monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 64)
    train, test = generate(SMALL)
    assert (train.rows, test.rows) == (1500, 400)
    alone = generate(replace(SMALL, rows=64))[0].labels.indices
    assert np.array_equal(train.labels.indices[: train.labels.indptr[64]], alone)


def assert_zipf(counts, exponent):
    """Check by a chi-square test that counts[n] are proportional to 1 / (n + 1)^exponent."""
    fractions = np.arange(1, len(counts) + 1) ** -exponent
    expected = counts.sum() * fractions / fractions.sum()
    degrees = len(counts) - 1
    assert ((counts - expected) ** 2 / expected).sum() < degrees + 4 * np.sqrt(2 * degrees)


def distributions(settings):
    own = np.random.default_rng(np.random.SeedSequence(settings.seed).spawn(3)[0])
    return synthetic._draw_distributions(settings, own)


def topic_of_label(settings):
    """The topic of each label: label_fractions between two topic_fractions belong to a topic."""
    known = distributions(settings)
    middles = known.label_fractions - np.diff(known.label_fractions, prepend=0) / 2
    topics = np.empty(settings.labels, np.int64)
    topics[known.labels] = np.searchsorted(known.topic_fractions, middles) - 1
    return topics


def test_labels_and_topics_follow_zipfs_law_and_rows_have_as_many_as_were_asked_for():
    settings = replace(SMALL, rows=60_000, labels_per_row=1.0, features_per_row=1.0)
    drawn = np.bincount(generate(settings)[0].labels.indices, minlength=200)
    assert_zipf(-np.sort(-drawn), SMALL.label_skew)
    topics = topic_of_label(replace(SMALL, labels=50_000))
    assert_zipf(np.bincount(topics, minlength=20), SMALL.topic_skew)
    one_topic = replace(SMALL, topics=1, label_skew=0, rows=4000, labels_per_row=2.5)
    several = generate(replace(one_topic, features=10**6, noise=0.95))[0]
    counts = (len(several.labels.indices) / 4000, len(several.inputs.indices) / 4000)
    assert counts == (pytest.approx(2.5, abs=0.2), pytest.approx(SMALL.features_per_row, rel=0.1))


def test_labels_of_a_row_are_of_one_topic_and_share_common_features(small):
    topics, labels = topic_of_label(SMALL), small[0].labels
    of_row = np.split(topics[labels.indices], labels.indptr[1:-1])
    assert all(len(set(row)) == 1 for row in of_row)
    prototypes = distributions(SMALL).prototypes
    counts = [np.bincount(prototypes[topics == n].ravel(), minlength=500) for n in range(5)]
    for common, other in pairwise(counts):
        assert common.max() > 0.1 * common.sum() > 2 * common[other.argmax()]
        assert np.mean(common > 0) > 0.2  # and there are rare ones to tell labels by


def test_features_come_from_all_labels_of_the_row_alike_except_for_noise(small):
    settings = replace(SMALL, noise=0.0, labels_per_row=3.0, prototype=8)
    prototypes, train = distributions(settings).prototypes, generate(settings)[0]
    labels = np.split(train.labels.indices, train.labels.indptr[1:-1])
    features = np.split(train.inputs.indices, train.inputs.indptr[1:-1])
    of_first = of_last = 0
    for own, found in zip(labels, features, strict=True):
        assert np.isin(found, prototypes[own]).all()
        of_first += np.isin(found, prototypes[own[0]]).sum()
        of_last += np.isin(found, prototypes[own[-1]]).sum()
    assert of_first == pytest.approx(of_last, rel=0.05)
    prototypes, (train, _) = distributions(SMALL).prototypes, small
    of_labels = np.zeros((train.rows, 500), bool)
    of_labels[rows_of(train.labels.indptr)[:, None], prototypes[train.labels.indices]] = True
    noise = 1 - of_labels[rows_of(train.inputs.indptr), train.inputs.indices].mean()
    assert 0.1 < noise < 0.3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rows": 10.0}, "rows: expected a whole number"),
        ({"seed": -1}, "seed: expected a whole number from 0 to 2^63 - 1; got -1"),
        ({"labels_per_row": 0.5}, "labels_per_row: expected a number from 1 to 10^6; got 0.5"),
        ({"noise": 1}, "noise: expected a number at least 0 and below 1; got 1"),
        ({"feature_skew": "1"}, "feature_skew: expected a number 0 or more; got '1'"),
    ],
)
def test_a_setting_out_of_range_is_named(change, complaint):
    with pytest.raises(UsageError) as caught:
        replace(SMALL, **change)
    assert str(caught.value).startswith(complaint)


def test_rows_are_read_back_the_same_also_empty_ones_and_odd_values(small, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 100)
    values = np.array([np.float32(1) / 3, 1e-30, np.nextafter(np.float32(1), 2)], np.float32)
    inputs = csr_inputs(np.array([0, 0, 2, 3, 3]), np.array([0, 3, 1], np.int32), values)
    labels = multi_labels(np.array([0, 2, 2, 3, 3]), np.array([1, 6, 0], np.int32))
    for number, examples in enumerate((small[1], Examples(inputs, labels, 4))):
        path = tmp_path / f"{number}.xmc"
        write_xmc(examples, 200, path)
        assert same(read_back(path), examples)
        assert read(path).classes_hint == 200


def test_rows_that_xmc_cannot_hold_and_missing_folders_are_refused(small, tmp_path):
    sparse, empty = small[1], multi_labels(np.array([0, 0, 0]), np.empty(0, np.int32))
    single = Examples(sparse.inputs, single_labels(np.zeros(sparse.rows, np.float32)), 500)
    dense = Examples(dense_inputs(np.zeros((2, 500), np.float32)), empty, 500)
    for refused in (single, dense):
        with pytest.raises(UsageError, match="sparse rows with lists of labels"):
            write_xmc(refused, 200, tmp_path / "a.xmc")
    with pytest.raises(UsageError, match=r"cannot write .*a\.xmc: No such file"):
        write_xmc(sparse, 200, tmp_path / "missing" / "a.xmc")


def test_the_command_writes_both_files(tmp_path, capsys):
    settings = SyntheticSettings(features=50, labels=20, rows=30, test_rows=10, seed=3, topics=4)
    numbers = {"features": 50, "labels": 20, "rows": 30, "test-rows": 10, "seed": 3, "topics": 4}
    flags = [f"--{name}={number}" for name, number in numbers.items()]
    folder = tmp_path / "new" / "er"
    assert main([str(folder), "--name", "toy", "--gzip", *flags]) == 0
    files = [folder / "toy-train.xmc.gz", folder / "toy-test.xmc.gz"]
    assert capsys.readouterr().out.split() == list(map(str, files))
    assert all(map(same, map(read_back, files), generate(settings)))


def test_mistakes_in_the_arguments_are_one_sentence(tmp_path, capsys):
    def run(*arguments):
        command = [sys.executable, "-m", "hogbatch.data.synthetic", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run(tmp_path / "out", "--rows", "0")
    complaint = "rows: expected a whole number from 1 to 2^31 - 2; got 0\n"
    assert done.stderr == f"python -m hogbatch.data.synthetic: {complaint}"
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    help_text = run("--help").stdout
    for part in ("OUT_DIR", "--labels N", "--noise X", "(default: 135909)"):
        assert part in help_text
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file" / "out"), "--rows", "1"]) == 2
    assert "cannot create the folder" in capsys.readouterr().err
