import pytest

from benchmarks.common.servers import Processors, digest
from benchmarks.rehearsals.sets import PAPER_SERVERS, SETS
from hogbatch.simulate.hardware.description import bundled_names, read_server, to_toml
from tests.support.rehearsed_cells import SAMPLES


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ("epyc-64cores", (64, 64)),
        ("h100-16cores", (16, 16, ("0",))),
        ("epyc-2cores", (2, 2)),  # it describes gpu:host, which `workers auto` does not use
        ("k80-28cores", (56, 28, ("0", "1"))),
    ],
)
def test_processors_are_those_of_the_description(server, found):
    assert Processors.of(server) == Processors(*found)


def test_the_digest_of_a_description_covers_the_one_it_is_based_on(tmp_path):
    base = to_toml(read_server("epyc-2cores"))
    (tmp_path / "base.toml").write_text(base)
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nabout = "A test"\nbased_on = "base.toml"\n')
    before = digest(str(file))
    assert digest(str(file)) == before
    (tmp_path / "base.toml").write_text(base.replace("smt_gain = 1.0", "smt_gain = 1.1"))
    assert digest(str(file)) != before


def test_the_servers_of_the_paper_are_bundled():
    assert set(PAPER_SERVERS) < set(bundled_names())


def test_a_run_with_a_metric_is_not_stopped_by_a_loss():
    flags = SETS["citeulike"].flags(SAMPLES)
    assert float(flags[flags.index("--target-loss") + 1]) < 1e-6
    assert SETS["citeulike"].shown("early") == "P@1 0.45"
    assert SETS["w8a"].flags(SAMPLES)[-1] == "0.042"


def test_networks_of_the_paper_are_trained_on_its_servers_only():
    assert SETS["w8a-paper"].allows("v100-32cores") and SETS["w8a"].allows("laptop-8cores")
    assert not SETS["w8a-paper"].allows("laptop-8cores")
