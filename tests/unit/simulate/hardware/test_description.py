"""Descriptions are read strictly; what they leave out is scaled or estimated."""

import re
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from hogbatch.errors import UsageError
from hogbatch.simulate.hardware import estimates
from hogbatch.simulate.hardware.description import (
    BUNDLED,
    bundled_names,
    parse_server,
    read_server,
    to_toml,
)

DOCS = Path(__file__).parents[4] / "docs" / "servers.md"
TEXT = (BUNDLED / "epyc-2cores.toml").read_text("utf-8")
HEAD = 'name = "mine"\nabout = "A test"\nbased_on = "epyc-2cores"\n'
DENSE = HEAD + '[cpu.dense]\nsource = "clock"\n'
GPU = """
[[gpus]]
ordinal = 0
model = "GPU"
peak_flops = 10e12
peak_memory_speed = 1e12
peak_link_speed = 20e9
multiprocessors = 50
source = "data sheet"
"""


def mine(text):
    return parse_server(text, "mine.toml")


def changed(old, new):
    assert TEXT.count(old) >= 1
    return TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name =", ["not valid TOML"]),
        (changed("[cpu]\n", "[cpu]\nspeed = 3\n"), ["unknown field `speed`", "$.cpu"]),
        (changed("cores = 2\n", ""), ["missing required field `cores`", "$.cpu"]),
        (changed("threads = 2\n", "threads = 1\n"), ["threads must be at least cores, 2; got 1"]),
        (changed("cores_per_cache = 2", "cores_per_cache = 99"), ["cores_per_cache", "99"]),
        (changed("smt_gain = 1.0", "smt_gain = inf"), ["Expected `float` <= ", "$.cpu.smt_gain"]),
        (changed('source = "', 'source = ""  # "'), ["length >= 1", "$.cpu.source"]),
        (changed('ordinal = "host"', 'ordinal = "gpu"'), ["'gpu'", "$.gpus[0].ordinal"]),
        (changed("[cpu]\n", "[cpu]\nfactors = {}\n"), ["unknown field `factors`"]),
        (TEXT + TEXT[TEXT.index("[[gpus]]") :], ["different ordinals", "['host', 'host']"]),
        (HEAD.replace("epyc-2cores", "gone"), ["'gone'", "epyc-2cores", "No such"]),
        (HEAD.replace("epyc-2cores", "mine.toml"), ["'mine.toml'", "based on itself"]),
        (HEAD + "cpu = 3", ["cpu must be a table; got 3"]),
        (DENSE + "factors = { flop = 2 }", ["cpu.dense.factors.flop is unknown", "flops"]),
        (DENSE + "factors = { speeds = 2 }", ["cpu.dense.factors.speeds is unknown", "seconds"]),
        (DENSE + "sources = { flops = 2 }", ["Expected `str`, got `int`"]),
        (HEAD + GPU.replace("multiprocessors", "cores"), ["missing", "`multiprocessors`"]),
        (HEAD + GPU.replace("10e12", "-1"), ["Expected `float` > 0", "peak_flops"]),
    ],
)
def test_a_fault_is_one_sentence_with_the_file(text, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        mine(text)
    message = str(caught.value)
    assert message.startswith(("mine.toml: ", "server 'gone': "))
    assert "\n" not in message.strip()
    for part in parts:
        assert part in message


@pytest.mark.parametrize("name", bundled_names())
def test_a_written_description_is_complete(name):
    text = to_toml(read_server(name))
    assert "based_on" not in tomllib.loads(text)
    assert to_toml(parse_server(text, name)) == text
    assert name != "epyc-2cores" or parse_server(text, name) == read_server(name)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    server, file = read_server("epyc-2cores"), tmp_path / "server.toml"
    file.write_text(f"\ufeff{to_toml(server)}")
    assert read_server(str(file)) == server


def test_figures_are_those_of_the_base_times_the_most_specific_factor(server):
    assert mine(HEAD).cpu == server.cpu
    assert mine(HEAD).gpus == () != server.gpus
    text = DENSE + "factors = { row_seconds = 3, seconds = 2 }\nexp_seconds = 1e-9\n"
    usual, dense = server.cpu.dense, mine(text).cpu.dense
    assert dense.row_seconds == 3 * usual.row_seconds
    assert dense.batch_seconds == 2 * usual.batch_seconds
    assert (dense.exp_seconds, dense.flops, dense.source) == (1e-9, usual.flops, "clock")
    memory = mine(HEAD + "[cpu.memory]\nfactors = { speeds = 0.5 }").cpu.memory
    assert memory.near_speed == 0.5 * server.cpu.memory.near_speed
    assert memory.shared_cache == server.cpu.memory.shared_cache


def test_a_base_may_be_a_file_next_to_it(tmp_path, server):
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "base.toml").write_text(to_toml(replace(server, name="base")))
    (folder / "mine.toml").write_text(HEAD.replace("epyc-2cores", "base.toml"))
    assert read_server(str(folder / "mine.toml")).cpu == server.cpu


def test_figures_of_a_gpu_follow_from_its_data_sheet():
    (gpu,) = mine(HEAD + GPU).gpus
    assert gpu.flops == pytest.approx(estimates.FLOPS * 10e12)
    assert gpu.fill_cells == 50 * estimates.FILL_CELLS
    taken = estimates.BYTES
    assert gpu.value_seconds == pytest.approx(taken["value_seconds"] / gpu.memory_speed)
    assert gpu.mapped_speed == pytest.approx(estimates.MAPPED * gpu.link_speed)
    (gpu,) = mine(HEAD + GPU + "memory_speed = 5e11").gpus
    expected = 5e11, pytest.approx(taken["score_seconds"] / 5e11)
    assert (gpu.memory_speed, gpu.score_seconds) == expected


def test_the_example_in_the_documentation_is_valid(server):
    (text,) = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    example = mine(text)
    assert example.cpu.dense.flops == 0.8 * server.cpu.dense.flops
    assert example.gpus[0].flops == pytest.approx(estimates.FLOPS * 91.6e12)
