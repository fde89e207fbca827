import pytest


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
