import pytest

from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.data.table.kinds import TableOptions

FLAGS = ("drop", "categorical", "numeric", "text", "scale")


@pytest.fixture
def read_table(write):
    """Write a file and read it as a training table; flags are those of `hogbatch train`."""

    def read_table(name, content, **options):
        path = write(name, content)
        asked = TableOptions(**{flag: options.pop(flag) for flag in FLAGS if flag in options})
        return read_as(path, ReadOptions(**options, table=asked))

    return read_table
