"""Options, markers and caches of all tests."""

import signal
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from hogbatch.jit import cache_directory
from hogbatch.kernels.gpu.probe import find_gpus
from tests.support.property_tests import register_profiles

TESTS = Path(__file__).parent
register_profiles()
# Under nohup, or started by a script in the background, processes of the tests would ignore these.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests of all kernels, and then those that need many of them: if processes share the tests in this
# order, the first one compiles while the other runs tests that need few kernels. The other one ends
# with tests of rehearsals, which need the kernels of batches in stages.
COMPILING = [
    TESTS / "unit" / "kernels" / "cpu" / "test_staged.py",
    TESTS / "unit" / "kernels",
    *(TESTS / "unit" / each for each in ("estimators", "workers", "simulate", "run", "model")),
    TESTS / "unit" / "benchmarks",
    TESTS / "property" / "test_prepared_files.py",
]


def pytest_collection_modifyitems(items):
    def place(item):
        folders = [item.path, *item.path.parents]
        return next((n for n, each in enumerate(COMPILING) if each in folders), len(COMPILING))

    items.sort(key=place)


def pytest_addoption(parser):
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="BACKEND",
        help="fail instead of skipping tests of this kernel backend if it cannot run; may repeat",
    )


def pytest_terminal_summary(terminalreporter):
    """Print one line for each reason for which tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture(scope="session")
def missing(request):
    """Call with a backend and what it lacks: skips, or fails if `--require` names the backend."""
    required = request.config.getoption("--require")

    def report(backend, reason):
        message = f"{backend}: {reason}"
        if backend in required:
            pytest.fail(message)
        pytest.skip(message)

    return report


@pytest.fixture(scope="session")
def gpus():
    """A function that returns the usable GPUs; its first call starts a process."""
    return cache(find_gpus)


@pytest.fixture(scope="session", autouse=True)
def empty_data_cache(tmp_path_factory):
    """A cache for this session with the user's compiled kernels but without the user's data."""
    kernels, root = cache_directory(), tmp_path_factory.mktemp("cache")
    kernels.mkdir(parents=True, exist_ok=True)
    (root / kernels.name).symlink_to(kernels.absolute())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOGBATCH_CACHE", str(root))
        yield root / "data"
