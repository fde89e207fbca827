"""Reading a file with single options, as most tests do."""

from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import read_as


def read(path, cache=None, **options):
    """Read a data file; `options` are the fields of `ReadOptions`."""
    return read_as(path, ReadOptions(**options), cache)
