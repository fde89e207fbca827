import gzip

import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs
from hogbatch.data.csr import to_dense
from hogbatch.data.encode import encode
from hogbatch.data.load import inputs_for, load
from hogbatch.data.order import split
from hogbatch.data.raw import Columns, ReadOptions
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
    text = (SAMPLES["a9a"].train.parent / "README.md").read_text(encoding="utf-8")
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
    path = write("a.csv", CSV)
    loaded = load(path, scale="none", loss="squared")
    order = np.random.default_rng(0).permutation(20)
    assert loaded.train.inputs.dense[:, 0].tolist() == order[:16].tolist()
    assert loaded.test.inputs.dense[:, 0].tolist() == order[16:].tolist()
    assert load(path, loss="squared", seed=1).fingerprint != loaded.fingerprint


def test_a_split_keeps_the_shares_of_the_classes(write):
    text = "".join(f"{i},{i % 10 == 0:d}\n" for i in range(100))
    for seed in range(5):
        loaded = load(write("a.csv", text), scale="none", seed=seed)
        assert (loaded.train.labels.values.sum(), loaded.test.labels.values.sum()) == (8, 2)
        rows = loaded.test.inputs.dense[:, 0]
        assert loaded.test.labels.values.tolist() == (rows % 10 == 0).tolist()


def test_classes_of_one_row_each_leave_none_to_test(write):
    loaded = load(write("a.csv", "".join(f"0,{i}\n" for i in range(8))), loss="softmax")
    assert (loaded.train.rows, loaded.test) == (8, None)


def test_what_whole_numbers_were_taken_for_is_said(write):
    quantities = "".join(f"0,{i}\n" for i in range(30))
    said = "labels: 30 distinct whole numbers treated as numbers (--loss softmax for classes)"
    assert load(write("a.csv", quantities)).notes == (said,)
    said = "labels: 3 classes (--loss squared for numbers)"
    assert load(write("a.csv", CSV), scale="none").notes == (said,)
    assert load(write("a.csv", CSV), scale="none", loss="softmax").notes == ()
    assert load(write("a.csv", "0,1.5\n0,2\n0,3\n")).notes == ()
    assert load(write("a.csv", "0,1\n0,2\n0,1\n")).notes == ()


def test_without_a_fraction_there_is_no_test_set(write):
    loaded = load(write("a.csv", CSV), test_fraction=0, scale="none")
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


def test_features_that_training_never_saw_are_ignored_with_a_note(write):
    test = write("t.svm", "1 1:5\n-1 2:1\n\n1 1:1 4:1\n1 2:3 3:2 4:1 9:1\n1 9:1\n")
    loaded = load(write("a.svm", SVM), test=test)
    assert loaded.test.rows == 5
    assert to_dense(loaded.test.inputs, 3).dense.tolist() == [
        *([5, 0, 0], [0, 1, 0], [1, 0, 0], [0, 3, 2], [0, 0, 0])
    ]
    (note,) = loaded.notes
    assert note.startswith(
        f"{test}: 4 values of 2 features that the training data lack are ignored"
    )
    raw = inputs_for(test, 3, index_base=1)
    assert raw.messages == loaded.notes
    assert raw.inputs.indptr.tolist() == loaded.test.inputs.indptr.tolist()
    lists = write("t.xmc", "2 9 2\n0 0:1 8:1\n1 1:1\n")
    raw = inputs_for(lists, 3)
    assert (raw.inputs.indices.tolist(), raw.features) == ([0, 1], 3)
    assert "t.xmc: 1 value of 1 feature that" in raw.messages[0]
    assert inputs_for(write("u.svm", "1 1:1\n"), 3, index_base=1).messages == ()


def test_the_number_of_features_can_be_given(write):
    wide = ReadOptions(declared=9)
    loaded = load(write("a.svm", SVM), test=write("t.svm", "1 9:1\n-1 2:1\n"), options=wide)
    assert (loaded.train.features, loaded.test.features, loaded.notes) == (9, 9, ())
    assert loaded.test.inputs.indices.tolist() == [8, 1]
    with pytest.raises(
        DataError, match=r"a\.svm:1:8: feature index 3; expected at most 2 \(--feat"
    ):
        load(write("a.svm", SVM), options=ReadOptions(declared=2))
    assert load(write("a.xmc", "2 3 2\n0 0:1\n1 1:1\n"), options=wide).train.features == 9
    with pytest.raises(DataError, match=r"a\.xmc has 3 features; --features is 2"):
        load(write("a.xmc", "2 3 2\n0 0:1\n1 1:1\n"), options=ReadOptions(declared=2))
    with pytest.raises(DataError, match=r"a\.csv has 2 features; --features is 9"):
        load(write("a.csv", CSV), options=wide)


def test_the_number_of_features_counts_from_the_index_base(write):
    from_zero = write("z.svm", "1 0:1\n-1 2:1\n1 1:1\n1 3:1\n")
    assert load(from_zero, options=ReadOptions(declared=4)).train.features == 4
    for base in (None, 0):
        with pytest.raises(DataError, match=r"z\.svm:4(:3)?: feature index 3; expected at most 2 "):
            load(from_zero, options=ReadOptions(declared=3, index_base=base))
    loaded = load(from_zero, options=ReadOptions(declared=3, bad_lines=0.5), test_fraction=0)
    assert (loaded.train.rows, loaded.train.features, loaded.skipped) == (3, 3, 1)


def shuffled(name, columns):
    """Read CSV rows with other columns; each row is made from a dictionary."""
    header, *lines = CSV.splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    cells = [",".join(str(make(row)) for make in columns.values()) for row in rows]
    return "\n".join([",".join(columns), *cells]) + "\n"


A, B, Y = (lambda row: row["a"]), (lambda row: row["b"]), (lambda row: row["y"])


@pytest.mark.parametrize(
    "columns",
    [
        {"y": Y, "a": A, "b": B},
        {"b": B, "y": Y, "a": A},
        {"id": lambda row: f"no. {row['a']}", "b": B, "y": Y, "z": lambda row: "", "a": A},
    ],
)
def test_a_test_file_may_have_its_columns_in_another_order(write, columns):
    plain = load(write("a.csv", CSV), test=write("t.csv", CSV), scale="standard")
    other = load(write("a.csv", CSV), test=write("u.csv", shuffled("u", columns)), scale="standard")
    np.testing.assert_array_equal(other.test.inputs.dense, plain.test.inputs.dense)
    np.testing.assert_array_equal(other.test.labels.values, plain.test.labels.values)
    assert other.fingerprint == plain.fingerprint
    assert len(other.notes) - len(plain.notes) == ("id" in columns)


def test_a_label_given_by_number_is_found_by_its_name(write):
    first = write("a.csv", shuffled("a", {"y": Y, "a": A, "b": B}))
    loaded = load(first, test=write("t.csv", CSV), options=ReadOptions(label="0"), scale="none")
    assert loaded.columns == Columns(("a", "b"), "y", 0)
    assert loaded.test.inputs.dense[:, 0].tolist() == list(range(20))


def test_a_test_file_without_the_label_or_a_feature_is_an_error(write):
    train = write("a.csv", CSV)
    with pytest.raises(DataError, match=r"t\.csv has no labels: expected the label column 'y'"):
        load(train, test=write("t.csv", "a,b\n1,2\n"))
    with pytest.raises(DataError, match=r"t\.csv:1: expected the 2 features .* no column 'b'"):
        load(train, test=write("t.csv", "a,y\n1,2\n"))


def test_names_do_not_change_the_fingerprint(write):
    named, bare = write("a.csv", CSV), write("b.csv", CSV.split("\n", 1)[1])
    assert load(named).fingerprint == load(bare).fingerprint


def test_the_label_of_a_test_file_in_another_format_goes_by_its_own_name(write):
    test = write("t.csv", "y,u,v,w\n1,5,0,1\n-1,4,1,1\n")
    loaded = load(write("a.svm", SVM), test=test, options=ReadOptions(label="y"))
    assert loaded.test.labels.values.tolist() == [1, 0]


@pytest.mark.parametrize(("row", "relation"), [("1,2,3,4,5", "more"), ("1,2", "fewer")])
def test_a_dense_test_file_has_the_same_features(write, row, relation):
    with pytest.raises(DataError, match=rf"t\.csv:1: {relation} features than the training data"):
        load(write("a.csv", "1,2,3,1\n2,3,4,0\n"), test=write("t.csv", row + "\n"))


def test_a_csv_test_file_without_its_label_column_has_no_labels(write):
    with pytest.raises(DataError, match=r"t\.csv has no labels"):
        load(write("a.csv", CSV), test=write("t.csv", "1,2\n"))
    with pytest.raises(DataError, match=r"u\.csv has no labels: expected a label column"):
        load(write("a.csv", "1,2,3\n3,4,5\n"), test=write("u.csv", "1,2\n"))


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


def test_both_sets_are_scaled_by_the_training_rows(write):
    plain, scaled = (
        load(write("a.csv", CSV), scale=each, loss="softmax") for each in ("none", "auto")
    )
    mean = plain.train.inputs.dense.mean(axis=0)
    std = plain.train.inputs.dense.std(axis=0)
    for one, other in ((plain.train, scaled.train), (plain.test, scaled.test)):
        expected = (one.inputs.dense - mean) / std
        np.testing.assert_allclose(other.inputs.dense, expected, rtol=1e-5, atol=1e-6)
    assert plain.scaler is None
    assert plain.notes == ()
    assert len(scaled.notes) == 1


def test_labels_and_options_reach_the_reader(write):
    loaded = load(write("a.csv", CSV), options=ReadOptions(label="a"), loss="squared")
    assert loaded.encoding.kind == "real"
    assert load(write("a.svm", SVM), options=ReadOptions(index_base=0)).train.features == 4


def test_a_file_without_features_cannot_be_trained_on(write):
    with pytest.raises(DataError, match=r"a\.svm: no row has a feature"):
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
        load(write("a.svm", SVM), scale="max").fingerprint,
        load(write("a.svm", SVM), test_fraction=0).fingerprint,
    ]
    assert zipped.fingerprint == same[0]
    assert len({same[0], *others}) == 7


def test_rows_to_predict_are_not_yet_scaled(write):
    raw = inputs_for(write("new.csv", "3,1700000001\n"), 2)
    assert raw.inputs.dense.tolist() == [[3, 1700000001]]
    assert (raw.labels, raw.features) == (None, 2)


def test_large_offsets_reach_training_and_test_rows_exactly(write, tmp_path):
    seconds = 1_700_000_000 + np.arange(40)
    y = np.arange(40) % 2
    np.savez(tmp_path / "a.npz", X=seconds[:, np.newaxis], y=y)
    text = "".join(f"{s},{label}\n" for s, label in zip(seconds, y, strict=True))
    for path in (write("a.csv", text), tmp_path / "a.npz"):
        loaded = load(path)
        order = split(40, 0.2, 0, y)
        for rows, examples in zip(order, (loaded.train, loaded.test), strict=True):
            expected = (rows - order[0].mean()) / order[0].std()
            assert examples.inputs.dense.dtype == np.float32
            np.testing.assert_allclose(examples.inputs.dense[:, 0], expected, rtol=1e-5)


def test_rows_to_evaluate_keep_their_labels(write):
    loaded = load(write("a.svm", SVM))
    raw = inputs_for(write("new.svm", "1 1:1\n-1\n"), loaded.train.features, index_base=1)
    assert encode(raw, loaded.encoding).values.tolist() == [1, 0]
    assert raw.features == 3


def test_bad_lines_of_both_files_are_counted_and_said(write):
    train, test = write("a.svm", SVM + "1 1:x\n"), write("t.svm", "1 1:5\n-1 0:1\n")
    loaded = load(train, test=test, options=ReadOptions(bad_lines=0.5))
    assert (loaded.train.rows, loaded.test.rows, loaded.skipped) == (10, 1, 2)
    assert loaded.notes[:3] == (
        f"{train}: 1 of 11 lines skipped (9.09%):",
        f"  {train}:11:5: expected a number; got 'x'",
        f"{test}: 1 of 2 lines skipped (50.00%):",
    )
    assert loaded.notes[3].startswith(f"  {test}:2:4: feature index 0")
    plain = load(write("b.svm", SVM), test=write("t.svm", "1 1:5\n"))
    assert (plain.fingerprint, plain.skipped, plain.notes) == (loaded.fingerprint, 0, ())


class TestTooLittleMemory:
    """Copies are made when rows are split, scaled or converted to dense."""

    @pytest.fixture(autouse=True)
    def nearly_full(self, monkeypatch):
        monkeypatch.setattr(budget, "free_memory", lambda: 20)

    @pytest.mark.parametrize(("name", "text"), [("rows.csv", CSV), ("rows.svm", SVM)])
    def test_splitting_and_scaling_are_refused(self, write, name, text):
        with pytest.raises(UsageError, match="of free memory for the scaled rows; got 20 B"):
            load(write(name, text))

    def test_writing_sparse_rows_out_is_refused(self):
        inputs = csr_inputs(np.zeros(11, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        message = "4 GB of free memory for 10 sparse rows as dense rows"
        with pytest.raises(UsageError, match=message):
            to_dense(inputs, 10**8)
