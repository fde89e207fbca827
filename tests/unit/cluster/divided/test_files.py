"""The files of a folder."""

import pytest

from hogbatch.cluster.divided.files import list_parts
from hogbatch.errors import DataError


def test_data_files_are_sorted_by_name(tmp_path):
    for name in ("b.csv", "a.csv", "c", ".hidden", "_SUCCESS"):
        (tmp_path / name).touch()
    assert [path.name for path in list_parts(tmp_path)] == ["a.csv", "b.csv", "c"]


def test_a_folder_without_data_files_is_refused(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(DataError, match="expected data files; the folder has none"):
        list_parts(tmp_path)


def test_a_file_or_a_missing_path_is_refused(tmp_path):
    (tmp_path / "data.csv").touch()
    with pytest.raises(DataError, match="expected a folder of data files; got a file"):
        list_parts(tmp_path / "data.csv")
    with pytest.raises(DataError, match="expected a folder of data files; got nothing there"):
        list_parts(tmp_path / "missing")


def test_files_in_a_folder_within_are_not_left_out_silently(tmp_path):
    (tmp_path / "a.csv").touch()
    (tmp_path / "year=2024").mkdir()
    with pytest.raises(DataError, match="got the folder 'year=2024'; move its files up"):
        list_parts(tmp_path)
