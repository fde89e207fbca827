"""Surveys of a folder by several servers."""

import msgspec
import pytest

from hogbatch.cluster.surveys import SurveyRequest, answer, survey_folder
from hogbatch.config.train import TrainConfig
from hogbatch.errors import DataError, UsageError


class Servers:
    """Answers requests, and records who was asked for which files."""

    def __init__(self):
        self.asked = []

    def __call__(self, requests):
        decoded = [msgspec.convert(msgspec.msgpack.decode(each), dict) for each in requests]
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
    assert [part.train.rows for part in data.parts] == [160, 16, 96, 64]
    assert data.train_sizes.features == 7
    assert [part.test.rows for part in data.parts] == [40, 4, 24, 16]


def test_the_division_does_not_depend_on_the_number_of_servers(folder):
    assert survey_folder(config(folder), 1, Servers()) == survey_folder(
        config(folder), 4, Servers()
    )


def test_files_with_features_from_1_are_read_again_if_others_have_a_feature_0(folder):
    (folder / "2.svm").write_text("+1 0:1 7:1\n-1 2:0.5\n" * 60)
    servers = Servers()
    data = survey_folder(config(folder), 2, servers)
    assert servers.asked == [[[0, 1], [2, 3]], [[0, 1], [3]]]
    assert data.train_sizes.features == 8 and data.index_base == 0


def test_a_test_file_replaces_the_test_rows_of_the_parts(folder, tmp_path):
    (tmp_path / "test.svm").write_text("+1 1:1\n-1 9:1\n" * 5)
    data = survey_folder(config(folder, test=str(tmp_path / "test.svm")), 2, Servers())
    assert data.test_sizes.rows == 10
    assert data.train_sizes.rows == 420 and all(part.test is None for part in data.parts)


def test_too_few_files_are_refused(folder):
    with pytest.raises(UsageError, match="only 4 files"):
        survey_folder(config(folder), 5, Servers())


def test_a_request_for_a_malformed_file_names_it(folder):
    (folder / "1.svm").write_text("+1 1:1\n+1 bad\n")
    with pytest.raises(DataError, match=r"1\.svm:2:"):
        survey_folder(config(folder), 2, Servers())


def test_requests_contain_all_that_a_server_needs(folder):
    request = SurveyRequest('data = "x"\n', ((3, str(folder / "3.svm")),), 0)
    (survey,) = msgspec.msgpack.decode(answer(msgspec.msgpack.encode(request)))
    assert survey["part"]["number"] == 3 and survey["part"]["index_base"] == 0
