import numpy as np
import pytest

from hogbatch.data.batch import csr_inputs
from hogbatch.data.csr import to_dense
from hogbatch.data.load import PIECES_ROWS, load, prepare
from hogbatch.data.order import Fractions, split
from hogbatch.data.raw import ReadOptions
from hogbatch.data.samples import SAMPLES
from hogbatch.data.table.given import training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.table.numeric import PIECES
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget
from tests.support.reading import packed, read_for_model

CSV = "a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 3}\n" for i in range(20))
SVM = "".join(f"{i % 2 * 2 - 1} 1:{i + 1} 3:{i % 2 + 1}\n" for i in range(10))


def test_the_sample_goes_by_its_name_and_brings_its_test_set_and_its_source():
    loaded = load("a9a")
    assert (loaded.train.rows, loaded.sets["test"].rows, loaded.train.features) == (
        32561,
        16281,
        123,
    )
    assert loaded.encoding.classes == (-1.0, 1.0)
    assert loaded.train.labels.values.sum() == 7841
    assert read_for_model("a9a", 123, index_base=loaded.index_base).rows == 16281
    text = (SAMPLES["a9a"]["train"].parent / "README.md").read_text(encoding="utf-8")
    assert "Becker" in text and "CC BY 4.0" in text


def test_a_name_of_no_sample_is_an_error_and_a_file_with_the_name_of_one_comes_first(
    write, tmp_path, monkeypatch
):
    with pytest.raises(DataError, match=r"no such file: a8a; bundled samples are a9a$"):
        load("a8a")
    write("a9a", SVM)
    monkeypatch.chdir(tmp_path)
    assert load("a9a").train.rows == 8


def test_rows_are_split_in_one_fixed_order(write):
    path = write("a.csv", CSV)
    loaded = load(path, scale="none", loss="squared")
    order = np.random.default_rng(0).permutation(20)
    parts = [each.inputs.dense[:, 0].tolist() for each in (loaded.train, loaded.sets["test"])]
    assert parts == [order[:16].tolist(), order[16:].tolist()]
    assert load(path, loss="squared", seed=1).fingerprint != loaded.fingerprint
    whole = load(path, fractions=Fractions(0), scale="none")
    assert (whole.train.inputs.dense[:, 0].tolist(), len(whole.sets)) == (list(range(20)), 1)


def test_a_split_keeps_the_shares_of_the_classes(write):
    text = "".join(f"{i},{i % 10 == 0:d}\n" for i in range(100))
    loaded = load(write("a.csv", text), scale="none")
    assert (loaded.train.labels.values.sum(), loaded.sets["test"].labels.values.sum()) == (8, 2)
    rows = loaded.sets["test"].inputs.dense[:, 0]
    assert loaded.sets["test"].labels.values.tolist() == (rows % 10 == 0).tolist()


def test_what_whole_numbers_were_taken_for_is_said(write):
    quantities = write("b.csv", "".join(f"{i % 3},{i}\n" for i in range(30)))
    said = "labels: 30 distinct whole numbers treated as numbers (--loss softmax for classes)"
    assert load(quantities, scale="none").notes == (said,)
    said = "labels: 3 classes (--loss squared for numbers)"
    assert load(write("a.csv", CSV), scale="none").notes == (said,)
    assert load(write("a.csv", CSV), scale="none", loss="softmax").notes == ()
    for plain in ("0,1.5\n1,2\n2,3\n", "0,1\n1,2\n2,1\n"):
        assert load(write("a.csv", plain), scale="none").notes == ()


def test_a_narrower_test_file_is_widened_and_features_that_training_never_saw_are_ignored(write):
    test = write("t.svm", "1 1:5\n-1 2:1\n\n1 1:1 4:1\n1 2:3 3:2 4:1 9:1\n1 9:1\n")
    loaded = load(write("a.svm", SVM), files={"test": test})
    assert (loaded.sets["test"].rows, loaded.sets["test"].features) == (5, 3)
    dense = to_dense(loaded.sets["test"].inputs, 3).dense.tolist()
    assert dense == [[5, 0, 0], [0, 1, 0], [1, 0, 0], [0, 3, 2], [0, 0, 0]]
    (note,) = loaded.notes
    ignored = "4 values of 2 features that the training data lack are ignored"
    assert note.startswith(f"{test}: {ignored}")
    raw = read_for_model(test, 3, index_base=1)
    assert raw.messages == loaded.notes
    assert raw.inputs.indptr.tolist() == loaded.sets["test"].inputs.indptr.tolist()
    narrow = load(write("a.svm", SVM), files={"test": write("u.svm", "1 1:5\n-1 2:1\n")})
    assert (narrow.sets["test"].features, narrow.notes) == (3, ())


def test_the_number_of_features_can_be_given(write):
    wide = ReadOptions(declared=9)
    train, lists = write("a.svm", SVM), write("a.xmc", "2 3 2\n0 0:1\n1 1:1\n")
    loaded = load(train, files={"test": write("t.svm", "1 9:1\n-1 2:1\n")}, options=wide)
    assert (loaded.train.features, loaded.sets["test"].features, loaded.notes) == (9, 9, ())
    assert loaded.sets["test"].inputs.indices.tolist() == [8, 1]
    assert load(lists, options=wide).train.features == 9
    for path, declared, complaint in (
        (train, 2, r"a\.svm:1:8: feature index 3; expected at most 2 \(--feat"),
        (lists, 2, r"a\.xmc has 3 features; --features is 2"),
        (write("a.csv", CSV), 9, r"a\.csv has 2 features; --features is 9"),
    ):
        with pytest.raises(DataError, match=complaint):
            load(path, options=ReadOptions(declared=declared))


def test_the_number_of_features_counts_from_the_index_base(write):
    from_zero = write("z.svm", "1 0:1\n-1 2:1\n1 1:1\n1 3:1\n")
    assert load(from_zero, options=ReadOptions(declared=4)).train.features == 4
    for base in (None, 0):
        with pytest.raises(DataError, match=r"z\.svm:4(:3)?: feature index 3; expected at most 2 "):
            load(from_zero, options=ReadOptions(declared=3, index_base=base))
    loaded = load(from_zero, options=ReadOptions(declared=3, bad_lines=0.5), fractions=Fractions(0))
    assert (loaded.train.rows, loaded.train.features, loaded.skipped) == (3, 3, 1)


def test_a_label_given_by_number_is_found_by_its_name(write):
    first = write("a.csv", "y,a,b\n0,1,2\n1,3,4\n2,5,6\n")
    loaded = load(
        first, files={"test": write("t.csv", CSV)}, options=ReadOptions(label=("0",)), scale="none"
    )
    assert loaded.sets["test"].inputs.dense[:, 0].tolist() == list(range(20))
    svm, other = write("a.svm", SVM), write("u.csv", "y,u,v,w\n1,5,0,1\n-1,4,1,1\n")
    loaded = load(svm, files={"test": other}, options=ReadOptions(label=("y",)))
    assert loaded.sets["test"].labels.values.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("train", "test", "complaint"),
    [
        (CSV, "a,b\n1,2\n", r"t\.csv has no labels: expected the label column 'y'"),
        (CSV, "a,y\n1,2\n", r"t\.csv: expected the 2 features .* no column 'b'"),
        ("1,2,3\n3,4,5\n", "1,2\n", r"t\.csv has no labels: expected a label column"),
        ("1,2,3,1\n2,3,4,0\n", "1,2,3,4,5\n", r"t\.csv:1: more features than the training data"),
        ("1,2,3,1\n2,3,4,0\n", "1,2\n", r"t\.csv:1: fewer features than the training data"),
    ],
)
def test_a_test_file_without_the_label_or_with_other_features_is_an_error(
    write, train, test, complaint
):
    with pytest.raises(DataError, match=complaint):
        load(write("a.csv", train), files={"test": write("t.csv", test)})


def test_a_test_file_counts_features_and_names_labels_as_its_training_file_does(write):
    from_zero = write("a.svm", "1 0:1 2:1\n-1 1:1\n")
    loaded = load(from_zero, files={"test": write("t.svm", "1 1:5\n")})
    assert (loaded.index_base, loaded.sets["test"].inputs.indices.tolist()) == (0, [1])
    with pytest.raises(DataError, match=r"a\.svm:1:3: feature index 0"):
        load(write("b.svm", SVM), files={"test": from_zero})
    with pytest.raises(DataError, match=r"t\.svm:2: label 0 does not occur"):
        load(write("b.svm", SVM), files={"test": write("t.svm", "1 1:5\n0 2:1\n")})


def test_a_test_set_takes_the_form_of_its_training_set(write):
    files = write("a.csv", "1,0,3,1\n2,3,0,-1\n"), write("a.svm", "1 1:1 3:3\n-1 1:2 2:3\n")
    for train, test in (files, files[::-1]):
        loaded = load(train, files={"test": test})
        assert loaded.train.sparse == loaded.sets["test"].sparse == (train.suffix == ".svm")
        for one, other in zip(loaded.train.inputs, loaded.sets["test"].inputs, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_large_offsets_are_scaled_exactly_by_the_training_rows(write, tmp_path):
    seconds, y = 1_700_000_000 + np.arange(40), np.arange(40) % 2
    np.savez(tmp_path / "a.npz", X=seconds[:, np.newaxis], y=y)
    text = "".join(f"{s},{label}\n" for s, label in zip(seconds, y, strict=True))
    for path in (write("a.csv", text), tmp_path / "a.npz"):
        loaded = load(path)
        order = split(40, Fractions(), 0, y)
        for name, examples in loaded.sets.items():
            expected = (order[name] - order["train"].mean()) / order["train"].std()
            assert examples.inputs.dense.dtype == np.float32
            np.testing.assert_allclose(examples.inputs.dense[:, 0], expected, rtol=1e-5)
    assert len(loaded.notes) == 1 and loaded.scaler is not None


def test_the_fingerprint_tells_data_apart_but_not_names_and_compression(write):
    same = [write(name, packed(name, SVM)) for name in ("a.svm", "b.svm", "a.svm.gz")]
    (fingerprint,) = {load(path).fingerprint for path in same}
    assert len(fingerprint) == 32
    changed = [SVM.replace("1:5", "1:6"), SVM.replace("1:9", "2:9"), SVM.replace("-1 ", "0 ")]
    others = [load(write("c.svm", content)).fingerprint for content in changed]
    settings = ({"loss": "softmax"}, {"scale": "max"}, {"fractions": Fractions(0)})
    others += [load(same[0], **each).fingerprint for each in settings]
    assert len({fingerprint, *others}) == 7
    named, bare = write("a.csv", CSV), write("b.csv", CSV.split("\n", 1)[1])
    assert load(named).fingerprint == load(bare).fingerprint


def test_a_file_without_features_cannot_be_trained_on(write):
    with pytest.raises(DataError, match=r"a\.svm: no row has a feature"):
        load(write("a.svm", "1\n-1\n"))


def test_bad_lines_of_both_files_are_counted_and_said(write):
    train, test = write("a.svm", SVM + "1 1:x\n"), write("t.svm", "1 1:5\n-1 0:1\n")
    loaded = load(train, files={"test": test}, options=ReadOptions(bad_lines=0.5))
    assert (loaded.train.rows, loaded.sets["test"].rows, loaded.skipped) == (10, 1, 2)
    assert loaded.notes[:3] == (
        f"{train}: 1 of 11 lines skipped (9.09%):",
        f"  {train}:11:5: expected a number; got 'x'",
        f"{test}: 1 of 2 lines skipped (50.00%):",
    )
    assert loaded.notes[3].startswith(f"  {test}:2:4: feature index 0")


class TestTooLittleMemory:
    """Copies are made when rows are split, scaled or converted to dense."""

    @pytest.fixture(autouse=True)
    def nearly_full(self, monkeypatch):
        monkeypatch.setattr(budget, "SMALL", 0)
        monkeypatch.setattr(budget, "free_memory", lambda: 20)

    @pytest.mark.parametrize(
        ("name", "text", "purpose"),
        [("a.csv", CSV, "rows of .*a.csv"), ("a.svm", SVM, "scaled rows")],
    )
    def test_reading_splitting_and_scaling_are_refused(self, write, name, text, purpose):
        with pytest.raises(UsageError, match=f"of free memory for the {purpose}; got 20 B"):
            load(write(name, text))

    def test_writing_sparse_rows_out_is_refused(self):
        rows = np.zeros(11, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
        message = "4 GB of free memory for 10 sparse rows as dense rows"
        with pytest.raises(UsageError, match=message):
            to_dense(csr_inputs(*rows), 10**8)


@pytest.mark.parametrize(
    ("rows", "columns", "loss", "linear", "encoded"),
    [
        (PIECES_ROWS, 32, "squared", False, True),
        (PIECES_ROWS, 33, "squared", False, False),
        (PIECES_ROWS - 1, 2, "squared", False, False),
        (PIECES_ROWS, 2, "softmax", False, False),
        (PIECES_ROWS, 2, "squared", True, False),
    ],
)
def test_numbers_are_also_encoded_by_intervals_for_networks_that_predict_numbers(
    rows, columns, loss, linear, encoded
):
    cells = np.random.default_rng(0).normal(size=(rows, columns))
    raw = training_set(cells, np.arange(rows) % 3, None, TableOptions())
    loaded = prepare(raw, fractions=Fractions(0, 0), loss=loss, linear=linear)
    assert loaded.train.features == columns * (1 + PIECES * encoded)
