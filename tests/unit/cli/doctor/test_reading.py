"""Reading the files of simulated machines, and what this machine and installation have."""

import sys

import pytest

from hogbatch.cli.doctor.command import PCI_FOLDER, attempt, count_pci_gpus, import_errors
from hogbatch.errors import UsageError
from tests.support.machine_files import write_files


@pytest.mark.parametrize(
    ("error", "status", "value"),
    [
        (FileNotFoundError(2, "No such file", "/sys/x"), "unknown", "unknown: /sys/x: No"),
        (ValueError("first\nsecond"), "unknown", "unknown: first"),
        (KeyError(), "unknown", "unknown: KeyError"),
        (UsageError("got a limit of 8"), "warn", "got a limit of 8"),
    ],
)
def test_a_check_that_fails_says_why(error, status, value):
    def fail():
        raise error

    verdict = attempt(fail)
    assert verdict.status == status and verdict.value.startswith(value)
    assert verdict.value.isprintable()


def test_nvidia_gpus_on_the_pci_bus_are_counted(tmp_path):
    files = {}
    for device in ("0x10de 0x030200", "0x10de 0x040300", "0x1002 0x030000"):
        folder = f"{PCI_FOLDER}/{device}"
        files[f"{folder}/vendor"], files[f"{folder}/class"] = device.split()
    assert count_pci_gpus(write_files(tmp_path, files)) == 1


def test_a_package_that_is_broken_is_reported(monkeypatch):
    assert import_errors() == {}
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert list(import_errors()) == ["pyzmq"]
