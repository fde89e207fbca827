import platform

import pytest

from hogbatch.machine.environment import installed, read_environment
from hogbatch.machine.linux import nvidia_driver, nvidia_gpus
from hogbatch.version import version
from tests.support.machine_files import write_files

NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:10:27 UTC 2026\n"


@pytest.fixture
def server(tmp_path):
    """A server with one GPU."""
    files = {
        "proc/cpuinfo": "model name\t: AMD EPYC\n",
        "proc/meminfo": "MemTotal:        2048 kB\n",
        "proc/driver/nvidia/version": NVRM,
        "proc/driver/nvidia/gpus/0000:41:00.0/information": "Model: \t\t NVIDIA H100\nIRQ: 7\n",
        "proc/driver/nvidia/gpus/0000:51:00.0/information": "damaged",
    }
    return write_files(tmp_path, files)


def test_versions_processor_memory_and_gpus_are_read_without_a_process(server, monkeypatch):
    monkeypatch.delattr("subprocess.Popen.__init__")
    monkeypatch.delattr("os.fork")
    facts = read_environment(server)
    assert facts["versions"]["hogbatch"] == version()
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["versions"]["numpy"] == installed("numpy")
    assert facts["processor"] == "AMD EPYC" and facts["memory"] == 2 << 20
    assert 1 <= facts["cores"] <= facts["logical_cores"]
    assert facts["gpus"] == ["NVIDIA H100"] and facts["driver"] == "580.65.06"


def test_facts_that_cannot_be_read_are_missing(tmp_path):
    facts = read_environment(tmp_path)
    assert facts["gpus"] == [] and not {"driver", "memory"} & facts.keys()
    assert nvidia_gpus(tmp_path) == () and nvidia_driver(tmp_path) is None
