"""Reading facts from files of simulated machines, with and without them."""

import os
import time

import pytest

from hogbatch.doctor.facts import CoreLoad, Driver, Unknown
from hogbatch.doctor.reading import caches, gpu, memory, processor, software
from hogbatch.doctor.reading.attempt import attempt
from hogbatch.kernels.gpu import nvidia_smi
from tests.support.descriptors import open_descriptors

STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 {} 0 0\ncpu1 0 0 0 {} 0 0 0 0 0 0\nintr 1\n"


@pytest.fixture
def machine(tmp_path):
    """A function that creates files of a simulated machine; returns its root directory."""

    def make(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return make


def raises(error):
    def read():
        raise error

    return read


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/sys/x"), "/sys/x: No such file"),
        (PermissionError(1, "Operation not permitted"), "Operation not permitted"),
        (ValueError("first\nsecond"), "first"),
        (KeyError(), "KeyError"),
        (RuntimeError("\x1b[31m" + "x" * 1000), r"\x1b[31mxxx"),
    ],
)
def test_an_exception_becomes_a_reason(error, reason):
    found = attempt(raises(error))
    assert isinstance(found, Unknown)
    assert found.reason.startswith(reason)
    assert len(found.reason) < 300 and found.reason.isprintable()


def test_governors_of_the_allowed_cores_are_read(machine):
    place = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    names = ["performance", "powersave", "ondemand"]
    root = machine({place.format(core): f"{name}\n" for core, name in enumerate(names)})
    assert processor.read_governors(frozenset({0, 1, 7}), root) == {"performance", "powersave"}
    with pytest.raises(ValueError, match="as in most virtual machines"):
        processor.read_governors(frozenset({7}), root)


def test_nodes_without_cores_do_not_count(machine):
    place = "sys/devices/system/node/node{}/cpulist"
    root = machine({place.format(0): "0-3\n", place.format(1): "4-7\n", place.format(2): "\n"})
    assert processor.count_nodes(root) == 2


def test_the_load_of_the_allowed_cores_is_measured(machine, monkeypatch):
    root = machine({"proc/stat": STAT.format(100, 100, 0, 100)})
    later = STAT.format(105, 110, 5, 120)
    monkeypatch.setattr(time, "sleep", lambda seconds: machine({"proc/stat": later}))
    assert processor.measure_load(frozenset({0, 1}), root) == CoreLoad(0.25, 0.25, 2)


def test_the_load_of_other_cores_does_not_count(machine, monkeypatch):
    root = machine({"proc/stat": STAT.format(0, 0, 0, 0)})
    later = STAT.format(20, 0, 0, 20)
    monkeypatch.setattr(time, "sleep", lambda seconds: machine({"proc/stat": later}))
    assert processor.measure_load(frozenset({1}), root) == CoreLoad(0.0, 0.0, 1)


def test_a_clock_of_cores_that_stands_still_is_an_error(machine):
    root = machine({"proc/stat": STAT.format(1, 1, 1, 1)})
    with pytest.raises(ValueError, match="does not report"):
        processor.measure_load(frozenset({0, 1}), root, seconds=0)


def test_without_files_facts_are_unknown(tmp_path):
    found = processor.read_processor(tmp_path)
    for fact in (found.nodes, found.governors, found.frequency_driver, found.load):
        assert isinstance(fact, Unknown)
    assert found.topology.cores == os.sched_getaffinity(0)
    assert found.vector_floats in (4, 8, 16)
    found = memory.read_memory(tmp_path)
    for fact in (found.total, found.shm, found.transparent, found.shmem):
        assert isinstance(fact, Unknown)
    assert (found.limit, found.left, found.memfd_error) == (None, None, "")
    assert isinstance(gpu.read_gpu(tmp_path).hardware, Unknown)


@pytest.mark.parametrize(
    ("line", "value"),
    [("always [madvise] never\n", "madvise"), ("[never]", "never"), ("madvise", "madvise")],
)
def test_the_chosen_value_of_a_setting_is_read(machine, line, value):
    root = machine({"enabled": line})
    assert memory.read_setting(root / "enabled") == value


def test_the_total_memory_is_read(machine):
    root = machine({"proc/meminfo": "MemTotal:        2048 kB\nMemFree: 1 kB\n"})
    assert memory.total_memory(root) == 2 << 20


def test_a_refused_memfd_is_reported(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert memory.try_memfd() == "Operation not permitted"
    assert isinstance(attempt(memory.try_huge_page), Unknown)


def test_a_huge_page_is_tried():
    before = open_descriptors()
    assert memory.try_huge_page() in (True, False)
    assert open_descriptors() <= before


def test_nvidia_gpus_on_the_pci_bus_are_counted(machine):
    devices = {
        "a": ("0x10de", "0x030200"),
        "b": ("0x10de", "0x040300"),
        "c": ("0x1002", "0x030000"),
    }
    files = {}
    for name, (vendor, kind) in devices.items():
        files[f"sys/bus/pci/devices/{name}/vendor"] = f"{vendor}\n"
        files[f"sys/bus/pci/devices/{name}/class"] = f"{kind}\n"
    assert gpu.count_pci_gpus(machine(files)) == 1


NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"


@pytest.mark.parametrize(
    ("files", "supported", "driver"),
    [
        ({}, 0, None),
        ({}, 12080, Driver("", "12.8")),
        ({"proc/driver/nvidia/version": NVRM}, 0, Driver("580.65.06", "")),
        ({"proc/driver/nvidia/version": NVRM}, 13000, Driver("580.65.06", "13.0")),
        ({"proc/driver/nvidia/version": "?"}, 0, Driver("", "")),
    ],
)
def test_a_driver_is_found_without_nvidia_smi(machine, monkeypatch, files, supported, driver):
    monkeypatch.setattr(nvidia_smi, "query_driver", lambda: None)
    assert gpu.read_driver(machine(files), supported) == driver


def test_files_of_a_cache_are_counted(tmp_path):
    (tmp_path / "a").mkdir()
    for name, size in (("a/x.nbc", 10), ("y.o", 20), ("z.nbi", 40)):
        (tmp_path / name).write_bytes(bytes(size))
    found = caches.describe_folder(tmp_path, (".nbc", ".o"), 5)
    assert (found.files, found.size, found.writable, found.min_free) == (2, 30, True, 5)
    assert found.free > 0


def test_a_cache_that_does_not_exist_is_not_created(tmp_path):
    found = caches.describe_folder(tmp_path / "a" / "b", (".o",), 0)
    assert (found.files, found.size, found.writable) == (0, 0, True)
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_broken_is_reported(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise SystemError('bad binary')")
    monkeypatch.syspath_prepend(tmp_path)
    assert software.try_import("broken_package") == "bad binary"
    assert "absent_package" in software.try_import("absent_package")
    assert software.try_import("json") == ""


def test_versions_of_this_installation_are_read():
    found = software.read_software()
    assert found.versions["numpy"] and found.import_errors == {}
    assert software.installed("absent-package") is None
