"""Reading the files of simulated machines, and what this machine and installation have."""

import os
import sys
import time
from functools import partial

import pytest

from hogbatch.cli.doctor import reading
from hogbatch.cli.doctor.checks import Status
from hogbatch.cli.doctor.command import attempt
from hogbatch.errors import UsageError
from tests.support.descriptors import open_descriptors
from tests.support.machine_files import write_files

STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 {} 0 0\ncpu1 0 0 0 {} 0 0 0 0 0 0\nintr 1\n"


@pytest.fixture
def machine(tmp_path):
    """A function that creates files of a simulated machine; returns its root directory."""
    return partial(write_files, tmp_path)


@pytest.mark.parametrize(
    ("error", "status", "value"),
    [
        (FileNotFoundError(2, "No such file", "/sys/x"), Status.UNKNOWN, "unknown: /sys/x: No"),
        (ValueError("first\nsecond"), Status.UNKNOWN, "unknown: first"),
        (KeyError(), Status.UNKNOWN, "unknown: KeyError"),
        (UsageError("got a limit of 8"), Status.WARN, "got a limit of 8"),
    ],
)
def test_a_check_that_fails_says_why(error, status, value):
    def fail():
        raise error

    verdict = attempt(fail)
    assert verdict.status is status and verdict.value.startswith(value)
    assert verdict.value.isprintable()


def test_governors_of_the_allowed_cores_are_read(machine):
    place = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    names = ["performance", "powersave", "ondemand"]
    root = machine({place.format(core): name for core, name in enumerate(names)})
    assert reading.read_governors(frozenset({0, 1, 7}), root) == {"performance", "powersave"}
    assert reading.read_governors(frozenset({7}), root) == frozenset()
    assert reading.frequency_driver(root) is None


@pytest.mark.parametrize(("cores", "load"), [({0, 1}, (0.25, 0.25)), ({1}, (0.0, 0.0))])
def test_the_load_of_the_allowed_cores_is_measured(machine, monkeypatch, cores, load):
    root = machine({"proc/stat": STAT.format(100, 100, 0, 100)})
    later = STAT.format(105, 110, 5, 120)
    monkeypatch.setattr(time, "sleep", lambda seconds: machine({"proc/stat": later}))
    assert reading.measure_load(frozenset(cores), root) == load


@pytest.mark.parametrize(
    ("line", "value"), [("always [madvise] never", "madvise"), ("never", "never")]
)
def test_the_chosen_value_of_a_setting_is_read(machine, line, value):
    assert reading.read_huge_page_setting(machine({reading.HUGE_PAGE_SETTING: line})) == value


def test_memfds_and_huge_pages_are_tried(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    before = open_descriptors()
    assert reading.try_huge_page() in (True, False)
    assert reading.try_memfd() is None
    assert open_descriptors() <= before
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert reading.try_memfd() == "Operation not permitted"


def test_nvidia_gpus_on_the_pci_bus_are_counted(machine):
    files = {}
    for device in ("0x10de 0x030200", "0x10de 0x040300", "0x1002 0x030000"):
        folder = f"{reading.PCI_FOLDER}/{device}"
        files[f"{folder}/vendor"], files[f"{folder}/class"] = device.split()
    assert reading.count_pci_gpus(machine(files)) == 1


def test_files_of_a_cache_are_measured(tmp_path):
    (tmp_path / "a").mkdir()
    for name, size in (("a/x.nbc", 10), ("y.o", 20), ("z.nbi", 40)):
        (tmp_path / name).write_bytes(bytes(size))
    found = reading.read_folder(tmp_path, (".nbc", ".o"), 5)
    assert (found.size, found.writable, found.min_free) == (30, True, 5) and found.free > 0


def test_a_cache_that_does_not_exist_is_not_created(tmp_path):
    found = reading.read_folder(tmp_path / "a" / "b", (".o",), 0)
    assert (found.size, found.writable) == (0, True)
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_broken_is_reported(monkeypatch):
    assert reading.import_errors() == {}
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert list(reading.import_errors()) == ["pyzmq"]
