"""The fake server of `tests/support/rehearsed_cells.py`, and the calls of its command."""

import pytest

from benchmarks.rehearsals import cell as cells


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """A function that returns the command lines of the fake command so far."""
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_LOG", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture(autouse=True)
def fake_server(monkeypatch):
    """One server, with a digest that tests can change."""
    monkeypatch.setattr(cells, "digest", lambda server: "1")
