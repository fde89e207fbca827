from types import SimpleNamespace

import numba
import pytest

from hogbatch.cli import rehearse as command
from hogbatch.run import training


def double(x):
    return 2 * x


@pytest.fixture
def rehearse(monkeypatch, capsys):
    """Rehearse a run that compiles `kernels` kernels and does nothing else; return its stderr."""

    def run(kernels, *, quiet=False):
        def compile_kernels(settings, platform):
            for _ in range(kernels):
                assert numba.njit(double)(1) == 2  # not cached
            return SimpleNamespace(exit_code=0)

        monkeypatch.setattr(training, "execute", compile_kernels)
        assert command.rehearse(["a9a", "--server", "epyc-2cores", *["--quiet"] * quiet]) == 0
        return capsys.readouterr().err

    return run


def test_a_rehearsal_that_compiles_kernels_says_so_once(rehearse):
    line = rehearse(kernels=2)
    assert line.startswith("compiling kernels, which takes") and line.count("\n") == 1
    assert rehearse(kernels=2, quiet=True) == ""


def test_a_rehearsal_that_compiles_nothing_does_not_say_so(rehearse):
    assert rehearse(kernels=0) == ""
