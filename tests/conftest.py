import pytest
from hypothesis import settings

from hogbatch.jit import cache_directory

# An example takes longer than the usual 200 ms when other programs load the machine.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser):
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="BACKEND",
        help="fail, not skip, the tests of this kernel backend where it cannot run; may repeat",
    )


@pytest.fixture(scope="session")
def missing(request):
    """Call with a backend and what it lacks: skips, or fails when `--require` names the backend."""

    def report(backend, reason):
        message = f"{backend}: {reason}"
        if backend in request.config.getoption("--require"):
            pytest.fail(message)
        pytest.skip(message)

    return report


@pytest.fixture(scope="session", autouse=True)
def empty_data_cache(tmp_path_factory):
    """A cache of this session that has the user's compiled kernels, but none of the user's data."""
    kernels, root = cache_directory(), tmp_path_factory.mktemp("cache")
    kernels.mkdir(parents=True, exist_ok=True)
    (root / kernels.name).symlink_to(kernels.absolute())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOGBATCH_CACHE", str(root))
        yield root / "data"
