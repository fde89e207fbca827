"""What nvidia-smi reports, by a script in its place."""

from types import SimpleNamespace

import pytest

from benchmarks.gpu_acceptance.preflight import facts

BUS = "0000:1B:00.0"
SMI = """#!/bin/sh
[ "$1 $2" = "-i {bus}" ] || exit 6
case "$3" in
  --query-gpu=name) echo "NVIDIA H100" ;;
  *{unknown}*) echo "Field \\"{unknown}\\" is not a valid field to query." ; exit 2 ;;
  *,*) echo "1980 MHz, 1980 MHz, 2619 MHz" ;;
  *) echo "5" ;;
esac
"""


@pytest.fixture
def gpu():
    runtime = SimpleNamespace(deviceGetPCIBusId=lambda device: BUS)
    return SimpleNamespace(cupy=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A function that puts an nvidia-smi first on PATH which does not know one name."""

    def put(unknown):
        path = tmp_path / "nvidia-smi"
        path.write_text(SMI.format(bus=BUS, unknown=unknown))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_all_fields_come_from_one_query(gpu, smi):
    smi(unknown="no.such.name")
    found = facts.clocks_and_link(gpu)
    assert found == {
        "clocks.sm": "1980 MHz",
        "clocks.max.sm": "1980 MHz",
        "clocks.mem": "2619 MHz",
    }


def test_an_unknown_name_does_not_affect_the_others(gpu, smi):
    smi(unknown="mig.mode.current")
    found = facts.clocks_and_link(gpu)
    assert found["mig.mode.current"] == "unknown"
    assert {value for name, value in found.items() if name != "mig.mode.current"} == {"5"}
    assert found.keys() == set(facts.QUERIES)


def test_without_nvidia_smi_there_is_a_note(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.clocks_and_link(gpu) == {"nvidia-smi": "missing, or failed"}
