"""Driver and clocks of a GPU, with a script in place of nvidia-smi."""

import os
import stat

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.kernels.gpu import cuda_device
from hogbatch.kernels.gpu.cuda_device import query_gpu


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """A function that returns what is read if nvidia-smi runs `body` of sh."""
    path = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def ask(body, timeout=WITHIN_S):
        monkeypatch.setattr(cuda_device, "TIMEOUT", timeout)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(stat.S_IRWXU)
        return query_gpu("0000:C1:00.0")

    return ask


def test_driver_and_clocks_are_read(answer, tmp_path):
    found = answer(f'echo "$@" > {tmp_path}/arguments; echo "580.65.06, 1755, 2619, 1980, 2620"')
    clocks = {
        "sm_mhz": "1755",
        "memory_mhz": "2619",
        "max_sm_mhz": "1980",
        "max_memory_mhz": "2620",
    }
    assert found == {"driver": "580.65.06", **clocks}
    assert (tmp_path / "arguments").read_text().split() == [
        "--id=0000:C1:00.0",
        "--query-gpu=driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem",
        "--format=csv,noheader,nounits",
    ]


def test_what_the_gpu_does_not_report_is_left_out(answer):
    found = answer('echo "580.65.06, [N/A], [Not Supported], 1980,"')
    assert found == {"driver": "580.65.06", "max_sm_mhz": "1980"}


@pytest.mark.parametrize(
    "body",
    ['echo "580, 1, 2, 3, 4"; exit 1', 'echo "580, 1755"', "printf '\\377\\n'", "kill -9 $$"],
)
def test_a_failure_gives_nothing(answer, body):
    assert answer(body) == {}


def test_a_program_that_hangs_or_is_missing_gives_nothing(answer, monkeypatch, tmp_path):
    assert answer("exec sleep 60", timeout=0.1) == {}
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert query_gpu("0000:C1:00.0") == {}
