"""Surveys of a folder by several servers."""

import msgspec
import pytest

from hogbatch.cluster.surveys import answer, list_parts, survey_folder
from hogbatch.config.train import TrainConfig
from hogbatch.errors import DataError


class Servers:
    """Answers requests, and records who was asked for which files."""

    def __init__(self):
        self.asked = []

    def __call__(self, requests):
        decoded = map(msgspec.msgpack.decode, requests)
        self.asked.append([[number for number, _ in each.get("parts", [])] for each in decoded])
        return [answer(request) for request in requests]


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data"
    made.mkdir()
    for number, rows in enumerate((100, 10, 60, 40)):
        (made / f"{number}.svm").write_text("+1 1:1 7:1\n-1 2:0.5\n" * rows)
    return made


def config(data, **settings):
    return TrainConfig(data=str(data), data_cache="off", data_copies=1, **settings)


def test_each_file_is_read_by_one_server(folder):
    servers = Servers()
    data = survey_folder(config(folder), 2, servers)
    assert servers.asked == [[[0, 1], [2, 3]]]  # about as many bytes for both
    assert [part.train.rows for part in data.parts] == [144, 15, 87, 58]
    assert data.train_sizes.features == 7
    assert [part.sets["test"].rows for part in data.parts] == [40, 4, 24, 16]
    assert data == survey_folder(config(folder), 4, Servers()), "whatever the number of servers"


def test_a_test_file_replaces_the_test_rows_of_the_parts(folder, tmp_path):
    (tmp_path / "test.svm").write_text("+1 1:1\n-1 9:1\n" * 5)
    data = survey_folder(config(folder, test=str(tmp_path / "test.svm")), 2, Servers())
    assert data.set_sizes["test"].rows == 10
    assert data.train_sizes.rows == 420 - data.set_sizes["validation"].rows == 378
    assert all("test" not in part.sets for part in data.parts)


def test_data_files_are_sorted_by_name(tmp_path):
    for name in ("b.csv", "a.csv", "c", ".hidden", "_SUCCESS"):
        (tmp_path / name).touch()
    assert [path.name for path in list_parts(tmp_path)] == ["a.csv", "b.csv", "c"]


def test_what_is_no_folder_of_data_files_is_refused(tmp_path):
    def refused(path, match):
        with pytest.raises(DataError, match=match):
            list_parts(path)

    (tmp_path / "_SUCCESS").touch()
    refused(tmp_path, "expected data files; the folder has none")
    refused(tmp_path / "_SUCCESS", "expected a folder of data files; got a file")
    refused(tmp_path / "missing", "expected a folder of data files; got nothing there")
    (tmp_path / "a.csv").touch()
    (tmp_path / "year=2024").mkdir()
    refused(tmp_path, "got the folder 'year=2024'; move its files up")
