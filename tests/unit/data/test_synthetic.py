import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest

from hogbatch.data import synthetic
from hogbatch.data.batch import (
    Examples,
    csr_inputs,
    dense_inputs,
    multi_labels,
    single_labels,
)
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


def counts(examples, settings=SMALL):
    return np.bincount(examples.labels.indices, minlength=settings.labels)


def dense(examples):
    table = np.zeros((examples.rows, examples.features), np.float32)
    rows = np.repeat(np.arange(examples.rows), np.diff(examples.inputs.indptr))
    table[rows, examples.inputs.indices] = examples.inputs.values
    return table


def first_labels(examples):
    """Rows with a single label, and their labels."""
    single = np.flatnonzero(np.diff(examples.labels.indptr) == 1)
    return single, examples.labels.indices[examples.labels.indptr[single]]


@pytest.fixture(scope="module")
def small():
    return generate(SMALL)


def test_types_and_sizes_are_those_that_kernels_read(small):
    for examples, rows in zip(small, (1500, 400), strict=True):
        assert (examples.rows, examples.features) == (rows, 500)
        dtypes = [array.dtype for array in arrays(examples)]
        assert dtypes == [np.int64, np.int32, np.float32, np.int64, np.int32]
        for indptr, indices, width in (
            (examples.inputs.indptr, examples.inputs.indices, 500),
            (examples.labels.indptr, examples.labels.indices, 200),
        ):
            assert indptr[0] == 0 and indptr[-1] == len(indices)
            assert (np.diff(indptr) >= 1).all()
            assert indices.min() >= 0 and indices.max() < width
            steps = np.diff(indices)
            steps[indptr[1:-1] - 1] = 1  # from one row to the next it may go down
            assert (steps > 0).all()


def test_values_are_positive_and_rows_have_length_one(small):
    for examples in small:
        assert (examples.inputs.values > 0).all()
        squares = np.add.reduceat(examples.inputs.values**2, examples.inputs.indptr[:-1])
        assert squares == pytest.approx(np.ones(examples.rows), abs=1e-5)


def test_a_value_is_tf_idf():
    """The ratio of two values in a row is the ratio of TF times IDF."""
    drawn = synthetic.CountedCsr(
        np.array([0, 2]), np.array([3, 5], np.int32), np.array([1, 4], np.float32)
    )
    rarity = np.arange(6, dtype=np.float32)
    values = synthetic._tf_idf(drawn, rarity).values
    assert values[1] / values[0] == pytest.approx(5 * (1 + np.log(4)) / 3)


def test_frequent_features_weigh_less(small):
    train = small[0]
    found = np.bincount(train.inputs.indices, minlength=500)
    summed = np.bincount(train.inputs.indices, train.inputs.values, minlength=500)
    mean, by_count = summed / np.maximum(found, 1), np.argsort(found)
    assert mean[by_count[-10:]].mean() < 0.8 * mean[by_count[:250]].mean()


def test_a_seed_gives_the_same_data_and_another_gives_other(small):
    again, other = generate(replace(SMALL)), generate(replace(SMALL, seed=1))
    assert all(map(same, small, again))
    assert not any(map(same, small, other))


def test_blocks_are_put_together_in_order(monkeypatch):
    """Other block sizes change the order of random numbers, but not the form of the sets."""
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 64)
    train, test = generate(SMALL)
    assert (train.rows, test.rows) == (1500, 400)
    alone = generate(replace(SMALL, rows=64))[0]
    assert train.labels.indptr[64] == len(alone.labels.indices)
    assert np.array_equal(train.labels.indices[: len(alone.labels.indices)], alone.labels.indices)


def test_the_number_of_rows_of_one_set_does_not_change_the_other(small):
    train = generate(replace(SMALL, test_rows=7))[0]
    assert same(train, small[0])
    test = generate(replace(SMALL, rows=3))[1]
    assert np.array_equal(test.inputs.indices, small[1].inputs.indices)
    assert np.array_equal(test.labels.indices, small[1].labels.indices)


def test_label_frequencies_follow_zipfs_law():
    settings = replace(SMALL, rows=60_000, labels_per_row=1.0, features_per_row=1.0)
    train = generate(settings)[0]
    drawn = -np.sort(-counts(train))
    fractions = np.arange(1, 201) ** -settings.label_skew
    expected = settings.rows * fractions / fractions.sum()
    chi_square = ((drawn - expected) ** 2 / expected).sum()
    assert chi_square < 199 + 4 * np.sqrt(2 * 199)


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


def test_labels_of_a_row_are_of_one_topic(small):
    labels, topics = small[0].labels, topic_of_label(SMALL)[small[0].labels.indices]
    assert (topics == np.repeat(topics[labels.indptr[:-1]], np.diff(labels.indptr))).all()


def test_topics_follow_zipfs_law():
    sizes = np.bincount(topic_of_label(replace(SMALL, labels=50_000)), minlength=20)
    fractions = np.arange(1, 21) ** -SMALL.topic_skew
    expected = 50_000 * fractions / fractions.sum()
    assert ((sizes - expected) ** 2 / expected).sum() < 19 + 4 * np.sqrt(2 * 19)


def test_labels_of_a_topic_share_common_features(monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 64)
    prototypes, topics = distributions(SMALL).prototypes, topic_of_label(SMALL)
    for one, other in pairwise(range(5)):
        common, next_common = (
            np.bincount(prototypes[topics == topic].ravel(), minlength=500)
            for topic in (one, other)
        )
        assert common.max() > 0.1 * common.sum() > 2 * common[next_common.argmax()]
        assert np.mean(common > 0) > 0.2  # and there are rare ones to tell labels by


def test_popular_labels_bear_any_number(small):
    assert np.argsort(-counts(small[0]))[:10].mean() > 20


@pytest.mark.parametrize("mean", [1.0, 2.5])
def test_a_row_has_the_labels_and_features_that_were_asked_for(mean):
    settings = SyntheticSettings(
        features=10**6, labels=200, rows=4000, test_rows=1, prototype=1000, feature_skew=0.0,
        label_skew=0.0, topics=1, labels_per_row=mean, features_per_row=40.0,
    )  # fmt: skip
    train = generate(settings)[0]
    assert len(train.labels.indices) / 4000 == pytest.approx(mean, abs=4 * np.sqrt(mean / 4000))
    assert len(train.inputs.indices) / 4000 == pytest.approx(40, rel=0.02)


def test_without_noise_features_come_from_all_labels_of_the_row_alike():
    settings = replace(SMALL, noise=0.0, labels_per_row=3.0, prototype=8)
    prototypes = distributions(settings).prototypes
    train = generate(settings)[0]
    of_first = of_last = 0
    for row in range(train.rows):
        labels = train.labels.indices[slice(*train.labels.indptr[row : row + 2])]
        features = train.inputs.indices[slice(*train.inputs.indptr[row : row + 2])]
        assert np.isin(features, prototypes[labels]).all()
        of_first += np.isin(features, prototypes[labels[0]]).sum()
        of_last += np.isin(features, prototypes[labels[-1]]).sum()
    assert of_first == pytest.approx(of_last, rel=0.05)


def test_rows_of_a_label_resemble_each_other_across_both_sets():
    """Test rows are nearest to the mean training row of their own label, with and without noise."""
    train, test = generate(replace(SMALL, labels_per_row=1.2, noise=0.3))
    rows, of_label = first_labels(train)
    means = np.zeros((200, 500))
    np.add.at(means, of_label, dense(train)[rows])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    rows, of_label = first_labels(test)
    nearest = (dense(test)[rows] @ means.T).argmax(1)
    assert np.mean(nearest == of_label) > 0.8


def test_more_noise_leaves_less_to_tell_labels_by():
    def within(noise):
        settings = replace(SMALL, noise=noise, labels_per_row=1.0)
        train = generate(settings)[0]
        rows, of_label = first_labels(train)
        means = np.zeros((200, 500))
        np.add.at(means, of_label, dense(train)[rows])
        means /= np.maximum(counts(train, settings)[:, None], 1)
        return np.mean((dense(train) * means[of_label]).sum(1))

    assert within(0.0) > 1.5 * within(0.6) > 1.5 * 1.2 * within(0.9)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"features": 0}, "features: expected a whole number from 1 to 2^31 - 2; got 0"),
        ({"labels": 2**31 - 1}, "labels: expected a whole number from 1 to 2^31 - 2"),
        ({"rows": 10.0}, "rows: expected a whole number"),
        ({"test_rows": -1}, "test_rows: expected a whole number"),
        ({"seed": -1}, "seed: expected a whole number from 0 to 2^63 - 1; got -1"),
        ({"labels_per_row": 0.5}, "labels_per_row: expected a number from 1 to 10^6; got 0.5"),
        ({"features_per_row": float("nan")}, "features_per_row: expected a number"),
        ({"prototype": True}, "prototype: expected a whole number"),
        ({"noise": 1}, "noise: expected a number at least 0 and below 1; got 1"),
        ({"label_skew": -0.1}, "label_skew: expected a number 0 or more; got -0.1"),
        ({"feature_skew": "1"}, "feature_skew: expected a number 0 or more; got '1'"),
    ],
)
def test_a_setting_out_of_range_is_named(change, complaint):
    with pytest.raises(UsageError) as caught:
        replace(SMALL, **change)
    assert str(caught.value).startswith(complaint)


def test_settings_are_frozen_and_take_whole_numbers_for_numbers():
    with pytest.raises(FrozenInstanceError):
        SMALL.rows = 1
    assert generate(replace(SMALL, feature_skew=1, label_skew=1, labels_per_row=1))[0].rows == 1500


@pytest.mark.parametrize("name", ["a.xmc", "a.xmc.gz"])
def test_what_is_written_is_read_back_the_same(small, tmp_path, monkeypatch, name):
    monkeypatch.setattr(synthetic, "BLOCK_ROWS", 100)
    write_xmc(small[1], 200, tmp_path / name)
    raw = read(tmp_path / name)
    assert (raw.features, raw.classes_hint) == (500, 200)
    labels = multi_labels(raw.label_lists.indptr, raw.label_lists.indices)
    assert same(Examples(raw.inputs, labels, raw.features), small[1])


def test_rows_without_labels_or_features_and_odd_values_survive(tmp_path):
    values = np.array([np.float32(1) / 3, 1e-30, np.nextafter(np.float32(1), 2)], np.float32)
    inputs = csr_inputs(np.array([0, 0, 2, 3, 3]), np.array([0, 3, 1], np.int32), values)
    labels = multi_labels(np.array([0, 2, 2, 3, 3]), np.array([1, 6, 0], np.int32))
    write_xmc(Examples(inputs, labels, 4), 7, tmp_path / "a.xmc")
    raw = read(tmp_path / "a.xmc")
    read_back = multi_labels(raw.label_lists.indptr, raw.label_lists.indices)
    assert same(Examples(raw.inputs, read_back, 4), Examples(inputs, labels, 4))


def test_rows_that_xmc_cannot_hold_are_refused(small, tmp_path):
    sparse = small[1]
    single = single_labels(np.zeros(sparse.rows, np.float32))
    flat = dense_inputs(np.zeros((2, 500), np.float32))
    for refused in (
        Examples(sparse.inputs, single, 500),
        Examples(flat, multi_labels(np.array([0, 0, 0]), np.empty(0, np.int32)), 500),
    ):
        with pytest.raises(UsageError, match="sparse rows with lists of labels"):
            write_xmc(refused, 200, tmp_path / "a.xmc")
    with pytest.raises(UsageError, match=r"cannot write .*a\.xmc: No such file"):
        write_xmc(sparse, 200, tmp_path / "missing" / "a.xmc")


def flags(settings, *more):
    names = ("features", "labels", "rows", "test_rows", "seed", "noise", "topics")
    pairs = ((f"--{name.replace('_', '-')}", str(getattr(settings, name))) for name in names)
    return [*(text for pair in pairs for text in pair), *more]


def test_the_command_writes_both_files(tmp_path, capsys):
    settings = SyntheticSettings(
        features=50, labels=20, rows=30, test_rows=10, seed=3, noise=0.25, topics=4
    )
    folder = tmp_path / "new" / "er"
    assert main([str(folder), "--name", "toy", "--gzip", *flags(settings)]) == 0
    files = [folder / "toy-train.xmc.gz", folder / "toy-test.xmc.gz"]
    assert capsys.readouterr().out.split() == list(map(str, files))
    for path, examples in zip(files, generate(settings), strict=True):
        raw = read(path)
        assert np.array_equal(raw.inputs.values, examples.inputs.values)
        assert np.array_equal(raw.label_lists.indices, examples.labels.indices)


def test_the_module_runs_as_a_command_and_explains_itself():
    done = subprocess.run(
        [sys.executable, "-m", "hogbatch.data.synthetic", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        check=True,
    )
    for flag in ("OUT_DIR", "--labels N", "--noise X", "(default: 135909)"):
        assert flag in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--noise", "1.5"], "noise: expected a number at least 0 and below 1; got 1.5\n"),
        (["--rows", "0"], "rows: expected a whole number from 1 to 2^31 - 2; got 0\n"),
    ],
)
def test_a_bad_flag_is_one_sentence(tmp_path, capsys, arguments, complaint):
    assert main([str(tmp_path / "out"), *arguments]) == 2
    assert capsys.readouterr().err == f"python -m hogbatch.data.synthetic: {complaint}"
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file" / "out"), *flags(SMALL)]) == 2
    assert "cannot create the folder" in capsys.readouterr().err
