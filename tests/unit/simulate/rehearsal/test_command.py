from types import SimpleNamespace

import numba
import pytest

from hogbatch.cli import rehearse as command
from hogbatch.run import training


def double(x):
    return 2 * x


@pytest.mark.parametrize(
    ("kernels", "flags", "lines"), [(2, [], 1), (2, ["--quiet"], 0), (0, [], 0)]
)
def test_a_rehearsal_that_compiles_kernels_says_so_once(monkeypatch, capsys, kernels, flags, lines):
    def compile_kernels(settings, platform):
        for _ in range(kernels):
            assert numba.njit(double)(1) == 2  # not cached
        return SimpleNamespace(exit_code=0)

    monkeypatch.setattr(training, "execute", compile_kernels)
    assert command.rehearse(["a9a", "--server", "epyc-2cores", *flags]) == 0
    assert capsys.readouterr().err.count("compiling kernels, which takes") == lines
