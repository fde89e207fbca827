import pytest

from hogbatch.data import text


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(params=["line by line", "compiled"])
def both_ways(request, monkeypatch):
    """Read small files in a single block, which goes line by line, and in blocks of a line or two.

    These go through the compiled parser.
    """
    if request.param == "compiled":
        monkeypatch.setattr(text, "BLOCK_BYTES", 8)
