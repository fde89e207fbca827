import math

import pandas
import pytest

from hogbatch.views.trackers.base import Point
from hogbatch.views.trackers.csv_file import CsvFile
from tests.support.tracked_runs import described


@pytest.fixture
def file(tmp_path):
    return CsvFile(described(tmp_path))


def read(folder):
    return pandas.read_csv(folder / "metrics.csv")


def values(rows, **others):
    return {"progress/rows": rows, "loss/test": 1 / rows, **others}


@pytest.mark.parametrize("resumed_rows", [None, 20])
def test_one_line_per_evaluation_readable_after_each(tmp_path, resumed_rows):
    file = CsvFile(described(tmp_path, resumed_rows=resumed_rows))
    for count in range(1, 4):
        file.log(Point(10 * count, 1.0, values(10 * count)))
        table = read(tmp_path)
        assert list(table) == ["progress/rows", "loss/test"]
        assert list(table["progress/rows"]) == [10 * n for n in range(1, count + 1)]
        assert table["loss/test"].iloc[-1] == 1 / (10 * count)


def test_a_new_column_is_empty_in_earlier_lines(file, tmp_path):
    name = 'metric/test/F1, "macro"'
    for rows, others in ((10, {}), (20, {name: 0.5}), (30, {})):
        file.log(Point(rows, 1.0, values(rows, **others)))
    column = list(read(tmp_path)[name])
    assert column[1] == 0.5 and math.isnan(column[0]) and math.isnan(column[2])


def test_a_resumed_run_continues_after_the_checkpoint(file, tmp_path):
    for rows in (10, 20, 30):
        file.log(Point(rows, 1.0, values(rows)))
    with (tmp_path / "metrics.csv").open("a") as cut:
        cut.write("40,0.0")  # killed while it wrote
    CsvFile(described(tmp_path, resumed_rows=20)).log(Point(25, 1.0, values(25)))
    assert read(tmp_path)["progress/rows"].tolist() == [10, 20, 25]
    assert read(tmp_path)["loss/test"].tolist() == [1 / 10, 1 / 20, 1 / 25]


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "progress/rows\nmany\n"])
def test_a_file_of_another_kind_is_left_alone(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises((KeyError, ValueError), match=r"progress/rows|many"):
        CsvFile(described(tmp_path, resumed_rows=20))
    assert (tmp_path / "metrics.csv").read_text() == content
