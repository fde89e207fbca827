import pytest

from tests.saboteur import Job


@pytest.fixture
def job(tmp_path):
    """A run in a folder of its own, of which nothing lives on after the test."""
    made = Job(tmp_path)
    yield made
    made.close()
