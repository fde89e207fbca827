"""Figures that a file leaves out are those of its base times its factors, or of a data sheet."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.simulate.hardware import estimates
from hogbatch.simulate.hardware.description import parse_server, read_server, to_toml

DOCS = Path(__file__).parents[4] / "docs" / "servers.md"
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


def test_figures_that_are_left_out_are_those_of_the_base(server):
    cpu = mine(HEAD).cpu
    assert mine(HEAD).gpus == () != server.gpus
    assert cpu.dense.flops == server.cpu.dense.flops
    assert cpu.memory.private_cache == server.cpu.memory.private_cache
    assert cpu.dense.sources["flops"] == f"epyc-2cores: {server.cpu.dense.source}"
    assert cpu.memory.sources["far_speed"] == "epyc-2cores: assumed: half of near_speed"


def test_a_factor_for_all_figures_with_an_ending(server):
    dense = mine(DENSE + "factors = { seconds = 1.5 }").cpu.dense
    assert dense.row_seconds == 1.5 * server.cpu.dense.row_seconds
    assert dense.score_seconds == 1.5 * server.cpu.dense.score_seconds
    assert dense.flops == server.cpu.dense.flops
    assert dense.sources["row_seconds"] == "epyc-2cores, times 1.5: clock"
    memory = mine(HEAD + '[cpu.memory]\nsource = "x"\nfactors = { speeds = 0.5 }').cpu.memory
    assert memory.near_speed == 0.5 * server.cpu.memory.near_speed
    assert memory.shared_cache == server.cpu.memory.shared_cache


def test_a_factor_for_one_figure_and_a_figure_itself_precede_one_for_all(server):
    text = DENSE + "factors = { row_seconds = 3, seconds = 2 }\nexp_seconds = 1e-9\n"
    dense = mine(text + 'sources = { row_seconds = "rows" }').cpu.dense
    assert dense.row_seconds == 3 * server.cpu.dense.row_seconds
    assert dense.batch_seconds == 2 * server.cpu.dense.batch_seconds
    assert dense.exp_seconds == 1e-9
    assert dense.sources["row_seconds"] == "epyc-2cores, times 3: rows"
    assert "exp_seconds" not in dense.sources  # so its source is that of the section


def test_a_base_may_be_a_file_next_to_it(tmp_path, server):
    folder = tmp_path / "servers"
    folder.mkdir()
    (folder / "base.toml").write_text(to_toml(replace(server, name="base")))
    (folder / "mine.toml").write_text(HEAD.replace("epyc-2cores", "base.toml"))
    found = read_server(str(folder / "mine.toml"))
    assert found.cpu.dense.sources["flops"].startswith("base: measured")


def test_a_base_is_not_based_on_another_description(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(HEAD.replace("epyc-2cores", "mine.toml"))
    with pytest.raises(UsageError, match=r"mine\.toml: key based_on must be .* not based on"):
        read_server(str(file))


def test_figures_of_a_gpu_follow_from_its_data_sheet():
    (gpu,) = mine(HEAD + GPU).gpus
    assert gpu.flops == pytest.approx(estimates.FLOPS * 10e12)
    assert gpu.fill_cells == 50 * estimates.FILL_CELLS
    assert gpu.value_seconds == pytest.approx(12 / gpu.memory_speed)
    assert gpu.mapped_speed == pytest.approx(estimates.MAPPED * gpu.link_speed)
    assert gpu.sources["memory_speed"] == "estimate: 0.85 of the peak, 1e+12"
    assert gpu.source == "data sheet"


def test_a_figure_of_a_gpu_precedes_its_estimate():
    text = GPU + 'memory_speed = 5e11\n[gpus.sources]\nmemory_speed = "measured"\nflops = "known"'
    (gpu,) = mine(HEAD + text).gpus
    assert gpu.memory_speed == 5e11
    assert gpu.score_seconds == pytest.approx(8 / 5e11)
    assert (gpu.sources["memory_speed"], gpu.sources["flops"]) == ("measured", "known")


def test_the_example_in_the_documentation_is_valid(server):
    (text,) = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    example = mine(text)
    assert example.cpu.dense.flops == 0.8 * server.cpu.dense.flops
    assert example.gpus[0].flops == pytest.approx(0.72 * 91.6e12)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEAD.replace("epyc-2cores", "gone"), ["key based_on, 'gone'", "epyc-2cores", "No such"]),
        (HEAD.replace("epyc-2cores", "epyc-64cores"), ["not based on another", "'epyc-64cores'"]),
        (HEAD + "cpu = 3", ["key cpu must be a table", "got 3"]),
        (HEAD + "[cpu.dense]\nflops = 1e9", ["cpu.dense.source is missing"]),
        (DENSE + "factors = { flop = 2 }", ["cpu.dense.factors.flop is unknown", "flops"]),
        (DENSE + "factors = { speeds = 2 }", ["cpu.dense.factors.speeds is unknown", "seconds"]),
        (DENSE + "factors = { flops = 0 }", ["factors.flops must be a number above 0", "got 0"]),
        (DENSE + "flops = 1e9\nfactors = { flops = 2 }", ["dense.factors.flops contradicts"]),
        (DENSE + "sources = { flops = 2 }", ["cpu.dense.sources must be a table with texts"]),
        (HEAD + GPU.replace("multiprocessors", "cores"), ["gpus[0].multiprocessors is missing"]),
        (HEAD + GPU.replace("10e12", "-1"), ["gpus[0].peak_flops must be a number above 0"]),
    ],
)
def test_a_fault_is_one_sentence(text, parts):
    with pytest.raises(UsageError) as caught:
        mine(text)
    message = str(caught.value)
    assert message.startswith("mine.toml: ")
    assert "\n" not in message
    for part in parts:
        assert part in message
