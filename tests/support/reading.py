"""Reading a file with single options, as most tests do."""

import gzip

import pytest

from hogbatch.data.later import rows_as
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as
from hogbatch.errors import DataError


def read(path, cache=None, **options):
    """Read a data file; `options` are the fields of `ReadOptions`."""
    return read_as(path, ReadOptions(**options), cache)


def read_error(path, cache=None, **options):
    """The message of the DataError for a file."""
    with pytest.raises(DataError) as caught:
        read(path, cache, **options)
    return str(caught.value)


def read_for_model(path, features, cache=None, **options):
    """Read rows for a model of `features` inputs."""
    return rows_as(path, ReadOptions(features=features, **options), cache)


def packed(name, content):
    """The bytes of `content`, compressed if the name of the file ends in .gz."""
    content = content.encode() if isinstance(content, str) else content
    return gzip.compress(content, mtime=0) if name.endswith(".gz") else content
