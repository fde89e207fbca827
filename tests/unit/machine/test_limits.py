"""Requirements of a run on the system, and the errors where they are not met."""

import resource

import pytest

from hogbatch.errors import UsageError
from hogbatch.machine import limits
from hogbatch.machine.limits import DEFAULT_FILES, MIN_FILES, check_limits

NO_LIMIT = resource.RLIM_INFINITY


@pytest.fixture
def system(monkeypatch):
    """A function that sets the limits, and the list of limits that were set afterwards."""
    changes = []

    def be(soft, hard):
        files, others = (soft, hard), (NO_LIMIT, NO_LIMIT)
        found = {resource.RLIMIT_NOFILE: files}
        monkeypatch.setattr(limits.resource, "getrlimit", lambda which: found.get(which, others))
        monkeypatch.setattr(limits.resource, "setrlimit", lambda which, to: changes.append(to))
        return changes

    return be


def test_a_missing_proc_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"^expected /proc to be mounted, .* 'mount -t proc"):
        check_limits(tmp_path)


@pytest.mark.parametrize(
    ("soft", "hard", "raised_to"),
    [
        (MIN_FILES, MIN_FILES, None),
        (NO_LIMIT, NO_LIMIT, None),
        (16, MIN_FILES, MIN_FILES),
        (16, 10**6, DEFAULT_FILES),
        (16, NO_LIMIT, DEFAULT_FILES),
    ],
)
def test_a_soft_limit_on_open_files_is_raised_where_it_is_too_low(system, soft, hard, raised_to):
    changes = system(soft, hard)
    check_limits()
    assert changes == ([] if raised_to is None else [(raised_to, hard)])


def test_a_low_hard_limit_is_one_sentence(system):
    system(16, MIN_FILES - 1)
    with pytest.raises(UsageError, match=r"at least 64 open files .* got a limit of 63: raise it"):
        check_limits()
