import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hogbatch.kernels.gpu import probe
from hogbatch.kernels.gpu.probe import Gpu, ProbeResult, find_gpus


def installed(monkeypatch, *names):
    found = [SimpleNamespace(metadata={"Name": name}) for name in (*names, "numpy")]
    monkeypatch.setattr(probe.metadata, "distributions", lambda: found)


class FakeCupy:
    """The part of CuPy used by the probe; `failures` maps a call to the exception it raises."""

    def __init__(self, count=1, driver=12090, failures=None):
        self.count, self.driver, self.failures = count, driver, failures or {}
        stream = SimpleNamespace(synchronize=lambda: None)
        self.cuda = SimpleNamespace(runtime=self, get_current_stream=lambda: stream)

    def answer(self, question, value=None):
        if question in self.failures:
            raise self.failures[question]
        return value

    def getDeviceCount(self):
        return self.answer("count", self.count)

    def driverGetVersion(self):
        return self.driver

    def getDeviceProperties(self, ordinal):
        return {"name": b"Fake %d" % ordinal, "totalGlobalMem": 1024}

    def RawKernel(self, code, name):
        return lambda grid, block, arguments: self.answer("kernel")

    def ones(self, shape, dtype):
        return shape

    def matmul(self, a, b):
        return self.answer("matmul")


@pytest.fixture
def cupy(monkeypatch):
    def put_in(**options):
        installed(monkeypatch, "cupy-cuda12x", "cupy-xarray")
        monkeypatch.setitem(sys.modules, "cupy", FakeCupy(**options))

    return put_in


def test_gpus_are_described(cupy):
    cupy(count=2)
    assert probe.probe() == ProbeResult((Gpu(0, "Fake 0", 1024), Gpu(1, "Fake 1", 1024)))


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        ([], "CuPy is not installed; install hogbatch[cuda12]"),
        (["cupy-cuda12x"], "CuPy is installed but cannot be imported: "),
        (["cupy-cuda13x", "cupy-cuda12x"], "cupy-cuda12x and cupy-cuda13x are installed"),
    ],
)
def test_without_a_usable_cupy_the_packages_are_the_reason(monkeypatch, packages, reason):
    installed(monkeypatch, *packages)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert probe.probe().reason.startswith(reason)


MISSING = ImportError("libnvrtc.so.12: cannot open shared object file")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"driver": 0, "failures": {"count": RuntimeError()}}, "there is no NVIDIA driver"),
        ({"failures": {"count": RuntimeError("no device\nmore")}}, "an error: no device"),
        ({"count": 0}, "no GPU is visible to this process"),
        ({"failures": {"kernel": MISSING}}, f"(hogbatch[cuda12] or hogbatch[cuda13]): {MISSING}"),
        ({"failures": {"matmul": MISSING}}, f"(hogbatch[cuda12] or hogbatch[cuda13]): {MISSING}"),
    ],
)
def test_what_is_missing_for_a_gpu_is_the_reason(cupy, options, reason):
    cupy(**options)
    found = probe.probe()
    assert found.devices == () and found.reason.endswith(reason)


@pytest.mark.parametrize("arguments", [[], [probe.PIN]])
def test_the_probe_prints_one_line_of_json(arguments):
    command = [sys.executable, "-m", "hogbatch.kernels.gpu.probe", *arguments]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert bool(answer["devices"]) != bool(answer["reason"])
    assert find_gpus(pin=bool(arguments)).reason == answer["reason"]


def test_a_crashed_probe_is_a_reason_and_not_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: name)
    found = find_gpus()
    assert found.devices == () and found.reason.startswith("the GPU probe failed: ")


def test_without_cupy_no_process_is_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import fails
    assert "failed" not in find_gpus().reason


def test_the_process_of_the_probe_imports_nothing_from_the_working_directory(tmp_path, monkeypatch):
    for module in ("platform", "msgspec", "cupy"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(probe.__file__).parents[3]))
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: name)
    assert "failed" not in (find_gpus().reason or "")
