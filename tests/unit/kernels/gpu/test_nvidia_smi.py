"""Driver and clocks of a GPU, with a script in place of nvidia-smi."""

import os
import stat

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.kernels.gpu import nvidia_smi
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.gpu.nvidia_smi import query_gpu

ADDRESS = "0000:C1:00.0"
ALL = {
    "driver": "580.65.06",
    "sm_mhz": "1755",
    "memory_mhz": "2619",
    "max_sm_mhz": "1980",
    "max_memory_mhz": "2619",
}


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that sets what nvidia-smi does, in sh."""
    path = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvidia_smi, "TIMEOUT", WITHIN_S)

    def write(body):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(stat.S_IRWXU)

    return write


def test_driver_and_clocks_are_read(script, tmp_path):
    script(f'echo "$@" > {tmp_path}/arguments; echo "580.65.06, 1755, 2619, 1980, 2619"')
    assert query_gpu(ADDRESS) == ALL
    assert (tmp_path / "arguments").read_text().split() == [
        "--id=0000:C1:00.0",
        "--query-gpu=driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem",
        "--format=csv,noheader,nounits",
    ]


def test_what_the_gpu_does_not_report_is_left_out(script):
    script('echo "580.65.06, [N/A], [Not Supported], 1980,"')
    assert query_gpu(ADDRESS) == {"driver": "580.65.06", "max_sm_mhz": "1980"}


@pytest.mark.parametrize(
    "body",
    [
        "echo No devices were found; exit 6",
        'echo "580, 1, 2, 3, 4"; exit 1',
        "exit 0",
        'echo "580, 1755"',
        "printf '\\377\\n'",
        "kill -9 $$",
    ],
)
def test_a_failure_gives_nothing(script, body):
    script(body)
    assert query_gpu(ADDRESS) == {}


def test_a_missing_program_gives_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_gpu(ADDRESS) == {}


def test_a_program_that_hangs_gives_nothing(script, monkeypatch):
    monkeypatch.setattr(nvidia_smi, "TIMEOUT", 0.1)
    script("exec sleep 60")
    assert query_gpu(ADDRESS) == {}


def test_the_host_has_no_driver():
    assert HostDevice().state() == {}
