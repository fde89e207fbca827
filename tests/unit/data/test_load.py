import gzip

import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs
from hogbatch.data.csr import to_dense
from hogbatch.data.encode import encode
from hogbatch.data.load import inputs_for, load
from hogbatch.data.raw import Options
from hogbatch.data.samples import SAMPLES
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget

CSV = "a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 3}\n" for i in range(20))
SVM = "".join(f"{i % 2 * 2 - 1} 1:{i + 1} 3:1\n" for i in range(10))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_goes_by_its_name_and_brings_its_test_set(name):
    loaded = load(name)
    assert (loaded.train.rows, loaded.test.rows, loaded.train.features) == (32561, 16281, 123)
    assert loaded.test.features == 123
    assert loaded.encoding.classes == (-1.0, 1.0)
    assert loaded.train.labels.values.sum() == 7841
    assert inputs_for(name, 123, index_base=loaded.index_base).rows == 16281


def test_the_sample_states_its_source():
    text = (SAMPLES["a9a"].train.parent / "README.md").read_text()
    assert "Becker" in text
    assert "CC BY 4.0" in text


def test_data_that_is_no_path_and_no_sample_names_the_samples():
    with pytest.raises(DataError, match=r"no such file: a8a; bundled samples are a9a$"):
        load("a8a")


def test_a_file_with_the_name_of_a_sample_comes_first(write, tmp_path, monkeypatch):
    write("a9a", SVM)
    monkeypatch.chdir(tmp_path)
    assert load("a9a").train.rows == 8


def test_rows_are_split_in_one_fixed_order(write):
    loaded = load(write("a.csv", CSV))
    order = np.random.default_rng(0).permutation(20)
    assert loaded.train.inputs.dense[:, 0].tolist() == order[:16].tolist()
    assert loaded.test.inputs.dense[:, 0].tolist() == order[16:].tolist()
    assert loaded.test.labels.values.tolist() == (order[16:] % 3).tolist()


def test_without_a_fraction_there_is_no_test_set(write):
    loaded = load(write("a.csv", CSV), test_fraction=0)
    assert loaded.test is None
    assert loaded.train.inputs.dense[:, 0].tolist() == list(range(20))
    assert load(write("b.svm", "1 1:1\n2 1:2\n")).test is None


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
def test_a_fraction_outside_its_range_is_refused(write, fraction):
    with pytest.raises(UsageError, match="test fraction must be at least 0 and below 1"):
        load(write("a.csv", CSV), test_fraction=fraction)


def test_a_narrower_sparse_test_file_is_widened(write):
    loaded = load(write("a.svm", SVM), test=write("t.svm", "1 1:5\n-1 2:1\n"))
    assert (loaded.train.rows, loaded.test.rows, loaded.test.features) == (10, 2, 3)
    assert to_dense(loaded.test.inputs, 3).dense.tolist() == [[5, 0, 0], [0, 1, 0]]


def test_a_wider_test_file_is_an_error_at_its_first_new_feature(write):
    test = write("t.svm", "1 1:5\n-1 2:1\n\n1 1:1 4:1\n1 9:1\n")
    with pytest.raises(DataError, match=r"t\.svm:4: more features .*: 9 here, 3 there"):
        load(write("a.svm", SVM), test=test)


@pytest.mark.parametrize(("row", "relation"), [("1,2,3,4,5", "more"), ("1,2", "fewer")])
def test_a_dense_test_file_has_the_same_features(write, row, relation):
    with pytest.raises(DataError, match=rf"t\.csv:1: {relation} features than the training data"):
        load(write("a.csv", "1,2,3,1\n2,3,4,0\n"), test=write("t.csv", row + "\n"))


def test_a_csv_test_file_without_its_label_column_has_no_labels(write):
    with pytest.raises(DataError, match=r"t\.csv has no labels"):
        load(write("a.csv", CSV), test=write("t.csv", "1,2\n"))


def test_a_test_file_counts_features_as_its_training_file_does(write):
    from_zero = write("a.svm", "1 0:1 2:1\n-1 1:1\n")
    loaded = load(from_zero, test=write("t.svm", "1 1:5\n"))
    assert loaded.index_base == 0
    assert loaded.test.inputs.indices.tolist() == [1]
    with pytest.raises(DataError, match=r"a\.svm:1:3: feature index 0"):
        load(write("b.svm", SVM), test=from_zero)


def test_a_test_label_unseen_in_training_is_an_error(write):
    with pytest.raises(DataError, match=r"t\.svm:2: label 0 does not occur"):
        load(write("a.svm", SVM), test=write("t.svm", "1 1:5\n0 2:1\n"))


@pytest.mark.parametrize("training", ["csv", "svm"])
def test_a_test_set_takes_the_form_of_its_training_set(write, training):
    files = {
        "csv": write("a.csv", "1,0,3,1\n2,3,0,-1\n"),
        "svm": write("a.svm", "1 1:1 3:3\n-1 1:2 2:3\n"),
    }
    test = files["svm" if training == "csv" else "csv"]
    loaded = load(files[training], test=test)
    assert loaded.train.sparse == loaded.test.sparse == (training == "svm")
    for one, other in zip(loaded.train.inputs, loaded.test.inputs, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_both_sets_are_standardised_by_the_training_rows(write):
    plain, scaled = (load(write("a.csv", CSV), standardize=flag) for flag in (False, True))
    mean = plain.train.inputs.dense.mean(axis=0)
    std = plain.train.inputs.dense.std(axis=0)
    for one, other in ((plain.train, scaled.train), (plain.test, scaled.test)):
        expected = (one.inputs.dense - mean) / std
        np.testing.assert_allclose(other.inputs.dense, expected, rtol=1e-5, atol=1e-6)
    assert plain.standardizer is None


def test_labels_and_options_reach_the_reader(write):
    loaded = load(write("a.csv", CSV), options=Options(label="a"), loss="squared")
    assert loaded.encoding.kind == "real"
    assert load(write("a.svm", SVM), options=Options(index_base=0)).train.features == 4


def test_a_file_without_features_cannot_be_trained_on(write):
    with pytest.raises(DataError, match=r"a\.svm: not one row has a feature"):
        load(write("a.svm", "1\n-1\n"))


def test_the_fingerprint_tells_data_apart(write):
    same = [load(write(name, SVM)).fingerprint for name in ("a.svm", "b.svm")]
    assert same[0] == same[1]
    assert len(same[0]) == 32
    zipped = load(write("a.svm.gz", gzip.compress(SVM.encode())))
    others = [
        load(write("c.svm", SVM.replace("1:5", "1:6"))).fingerprint,
        load(write("c.svm", SVM.replace("1:9", "2:9"))).fingerprint,
        load(write("c.svm", SVM.replace("-1 ", "0 "))).fingerprint,
        load(write("a.svm", SVM), loss="softmax").fingerprint,
        load(write("a.svm", SVM), standardize=True).fingerprint,
        load(write("a.svm", SVM), test_fraction=0).fingerprint,
    ]
    assert zipped.fingerprint == same[0]
    assert len({same[0], *others}) == 7


def test_rows_to_predict_are_widened_and_standardised(write):
    loaded = load(write("a.csv", CSV), standardize=True)
    raw = inputs_for(
        write("new.csv", "3,4\n"), 2, standardizer=loaded.standardizer, index_base=loaded.index_base
    )
    expected = (np.array([3, 4]) - loaded.standardizer.mean) / loaded.standardizer.scale
    np.testing.assert_allclose(raw.inputs.dense, [expected], rtol=1e-6)
    assert (raw.labels, raw.features) == (None, 2)


def test_rows_to_evaluate_keep_their_labels(write):
    loaded = load(write("a.svm", SVM))
    raw = inputs_for(write("new.svm", "1 1:1\n-1\n"), loaded.train.features, index_base=1)
    assert encode(raw, loaded.encoding).values.tolist() == [1, 0]
    assert raw.features == 3


def test_bad_lines_of_both_files_are_counted_and_said(write):
    train, test = write("a.svm", SVM + "1 1:x\n"), write("t.svm", "1 1:5\n-1 0:1\n")
    loaded = load(train, test=test, options=Options(bad_lines=0.5))
    assert (loaded.train.rows, loaded.test.rows, loaded.skipped) == (10, 1, 2)
    assert loaded.notes[:3] == (
        f"{train}: 1 of 11 lines are left out (9.09%):",
        f"  {train}:11:5: expected a number; got 'x'",
        f"{test}: 1 of 2 lines are left out (50.00%):",
    )
    assert loaded.notes[3].startswith(f"  {test}:2:4: feature index 0")
    plain = load(write("b.svm", SVM), test=write("t.svm", "1 1:5\n"))
    assert (plain.fingerprint, plain.skipped, plain.notes) == (loaded.fingerprint, 0, ())


class TestTooLittleMemory:
    """Rows are copied where they are split, scaled or written out."""

    @pytest.fixture(autouse=True)
    def nearly_full(self, monkeypatch):
        monkeypatch.setattr(budget, "free_memory", lambda: 200)

    @pytest.mark.parametrize("text", [CSV, SVM])
    def test_splitting_off_a_test_set_is_refused(self, write, text):
        path = write("rows.csv" if text is CSV else "rows.svm", text)
        with pytest.raises(
            UsageError, match="of free memory for splitting off a test set; got 200"
        ):
            load(path)

    def test_standardising_is_refused(self, write):
        path = write("rows.svm", SVM)
        with pytest.raises(UsageError, match="of free memory for standardised rows; got 200 B"):
            load(path, test_fraction=0, standardize=True)

    def test_writing_sparse_rows_out_is_refused(self):
        inputs = csr_inputs(np.zeros(11, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        with pytest.raises(UsageError, match="4 GB of free memory for 10 sparse rows written out"):
            to_dense(inputs, 10**8)
