"""Prediction of large text files, piece by piece."""

from dataclasses import replace

import numpy as np
import pandas
import pytest

from hogbatch.data import pieces, text
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.errors import DataError
from hogbatch.model.file import save_model
from hogbatch.model.prediction import DataFile, predict_file
from tests.support.trained_models import model_for

ROWS = 200
BLOCK_BYTES = 100


@pytest.fixture
def small_pieces(monkeypatch):
    """Return a function that makes pieces small, and yields how many have been read."""
    read = []
    whole = pieces.in_memory

    def begin():
        monkeypatch.setattr(text, "BLOCK_BYTES", BLOCK_BYTES)
        monkeypatch.setattr(pieces, "PIECE_BYTES", 10 * BLOCK_BYTES)
        monkeypatch.setattr(pieces, "in_memory", lambda *given: read.append(1) or whole(*given))
        return read

    return begin


@pytest.fixture
def saved(tmp_path):
    """A model of a table with a column of text, and rows for it in a CSV file."""
    random = np.random.default_rng(1)
    names = np.array(["red", "green", "dark\nblue", 'with "quotes", and more'])
    frame = pandas.DataFrame({"n": random.normal(size=ROWS), "c": names[np.arange(ROWS) % 4]})
    raw = training_set(frame, np.arange(ROWS) % 3, None, TableOptions())
    table = TableEncoding.fit(raw.table, None, "standard")
    model = replace(model_for(features=table.features), table=table)
    save_model(model, tmp_path / "model.safetensors")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return str(tmp_path / "model.safetensors"), tmp_path / "rows.csv"


def lines(model, path, **options):
    return list(predict_file(model, DataFile(str(path)), **options))


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("options", [{}, {"proba": True}, {"top": 2}])
def test_pieces_give_the_lines_of_the_whole_file(table, options, saved, small_pieces):
    """Found: rows at the end of a piece that are lost, cells in quotes that are cut."""
    expected = lines(*saved, table=table, **options)
    read = small_pieces()
    assert lines(*saved, table=table, **options) == expected
    assert len(read) > 3


def test_an_error_in_a_piece_names_the_line_of_the_file(saved, small_pieces):
    model, path = saved
    before = path.read_text()
    path.write_text(f"{before}oops,red\n")
    expected = f"rows.csv:{before.count(chr(10)) + 1}: column 'n': expected a number; got 'oops'"
    small_pieces()
    with pytest.raises(DataError, match=expected):
        lines(model, path)


def test_sparse_text_is_read_in_pieces(tmp_path, small_pieces):
    save_model(replace(model_for(), index_base=1), tmp_path / "model.safetensors")
    random = np.random.default_rng(1)
    cells = [f"{1 + n % 5}:{random.normal():.3f} 9:1" for n in range(ROWS)]
    (tmp_path / "rows.svm").write_text("".join(f"1 {each}\n" for each in cells))
    given, notes = (str(tmp_path / "model.safetensors"), tmp_path / "rows.svm"), []
    expected = lines(*given, proba=True)
    read = small_pieces()
    data = DataFile(str(given[1]), report=notes.append)
    assert list(predict_file(given[0], data, proba=True)) == expected
    assert len(read) > 1 and len(set(notes)) == len(notes)


def test_a_file_that_changes_is_refused(saved, small_pieces):
    small_pieces()
    found = predict_file(saved[0], DataFile(str(saved[1])))
    with saved[1].open("a") as file:
        file.write("1,red\n")
    with pytest.raises(DataError, match="changed while it was read"):
        list(found)
