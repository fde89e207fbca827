"""Data that are read in pieces, compared with the same data read as a whole."""

import numpy as np
import pandas
import pytest

from hogbatch.data.facts import Fitted
from hogbatch.data.large import load_in_pieces
from hogbatch.data.load import load
from hogbatch.data.order import Fractions
from hogbatch.data.pieces import text_pieces
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import large_file
from hogbatch.data.source import Source
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError

ROWS = 3000
OPTIONS = ReadOptions(table=TableOptions())
SETTINGS = {"files": {}, "fractions": Fractions(0.2, 0.25), "seed": 3}


def frame():
    random = np.random.default_rng(2)
    numbers = random.normal(size=(ROWS, 4)).astype(np.float32)
    table = pandas.DataFrame(numbers, columns=[*"abcd"])
    table.loc[::7, "b"] = np.nan
    table["kind"] = np.array(["red", "green", 'with "quotes",\nand more'])[np.arange(ROWS) % 3]
    table["label"] = np.where(numbers[:, 0] > 0, "yes", "no")
    return table


def csv(path):
    frame().to_csv(path, index=False)


def parquet(path):
    frame().to_parquet(path, row_group_size=700)


def folder(path):
    path.mkdir()
    for number, part in enumerate(np.array_split(np.arange(ROWS), 3)):
        frame().iloc[part].to_parquet(path / f"{number}.parquet")


def libsvm(path):
    random = np.random.default_rng(2)
    first = random.integers(0, 50, ROWS)
    first[-1] = 99  # the highest feature is in the last piece
    lines = [f"{n % 2} {a + 1}:{n / 7:.4f} {a + 3}:1\n" for n, a in enumerate(first)]
    path.write_text("".join(lines))


KINDS = {"rows.csv": csv, "rows.parquet": parquet, "rows": folder, "rows.svm": libsvm}


@pytest.fixture(params=KINDS)
def path(request, tmp_path):
    KINDS[request.param](tmp_path / request.param)
    return tmp_path / request.param


def rows_of(data):
    """All rows of all sets, with their labels: the numbers of each in one bytes object."""
    found = []
    for examples in data.sets.values():
        inputs, labels = examples.inputs, examples.labels.values
        for row in range(examples.rows):
            if examples.sparse:
                own = slice(inputs.indptr[row], inputs.indptr[row + 1])
                cells = inputs.indices[own].tobytes() + inputs.values[own].tobytes()
            else:
                cells = inputs.dense[row].tobytes()
            found.append(cells + labels[row].tobytes())
    return sorted(found)


def test_pieces_have_the_rows_of_the_whole_file_bit_for_bit(path):
    """Found: rows lost or doubled between pieces, and cells that are encoded in another way."""
    large = large_file(path, OPTIONS)
    sample, *rest = load_in_pieces(large, 3 * large.bytes, options=OPTIONS, **SETTINGS)
    assert len(rest) >= 3
    known = sample.encoding, sample.scaler, sample.table, sample.columns, sample.index_base
    like = Fitted(*known, sample.train_sizes.features)
    whole = load(path, options=OPTIONS, fractions=Fractions(0, 0), scale=like)
    assert sorted(row for each in [sample, *rest] for row in rows_of(each)) == rows_of(whole)
    sets = [
        each.set_sizes[name].rows for name in ("test", "validation") for each in [sample, *rest]
    ]
    tested, validated = sum(sets[: len(sets) // 2]), sum(sets[len(sets) // 2 :])
    assert tested == pytest.approx(0.2 * ROWS, rel=0.1)
    assert validated == pytest.approx(0.2 * ROWS, rel=0.1)
    again = load_in_pieces(large, 3 * large.bytes, options=OPTIONS, **SETTINGS)
    assert [each.fingerprint for each in again] == [each.fingerprint for each in [sample, *rest]]


def test_a_sample_of_all_rows_is_read_as_data_in_memory_are(path):
    """Found: another split, scale or encoding of the sample."""
    (sample,) = load_in_pieces(large_file(path, OPTIONS), 1 << 30, options=OPTIONS, **SETTINGS)
    whole = load(path, options=OPTIONS, **SETTINGS)
    assert sample.fingerprint == whole.fingerprint
    assert {**sample.set_sizes} == {**whole.set_sizes}


def test_an_error_in_a_piece_names_the_line_of_the_file(tmp_path):
    lines = [f"{n % 2} 1:{n}\n" for n in range(ROWS)]
    lines[1900] = "1 1:x\n"
    (tmp_path / "rows.svm").write_text("".join(lines))
    large = large_file(tmp_path / "rows.svm", OPTIONS)
    with pytest.raises(DataError, match=r"rows\.svm:1901:"):
        list(load_in_pieces(large, 1 << 17, options=OPTIONS, **SETTINGS))


def test_a_label_that_the_sample_lacks_is_an_error_with_its_line(tmp_path):
    lines = [f"{n},{'ab'[n % 2]}\n" for n in range(ROWS)]
    lines[700] = "700,c\n"
    (tmp_path / "rows.csv").write_text("n,label\n" + "".join(lines))
    large = large_file(tmp_path / "rows.csv", OPTIONS)
    with pytest.raises(DataError, match=r"rows\.csv:702: label 'c' does not occur"):
        list(load_in_pieces(large, 1 << 14, options=OPTIONS, **SETTINGS))


def test_compressed_text_and_arrays_are_not_read_in_pieces(tmp_path):
    frame().to_csv(tmp_path / "rows.csv.gz", index=False)
    np.savez(tmp_path / "rows.npz", X=np.eye(3), y=np.arange(3))
    assert large_file(tmp_path / "rows.csv.gz", OPTIONS).rows is None
    assert large_file(tmp_path / "rows.npz", OPTIONS) is None


def test_a_piece_ends_where_no_cell_is_in_quotes(tmp_path):
    path, rows = tmp_path / "rows.csv", ['5" pipe;1\n', '"two;\n""lines""";2\n', 'a;"5"" pipe"\n']
    path.write_text("".join(rows * 50))
    pieces = [piece.path.read_text() for piece in text_pieces(Source(path), 1, ";")]
    assert "".join(pieces) == path.read_text() and {*pieces} == {*rows}
