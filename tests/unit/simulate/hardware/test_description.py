"""Descriptions are read strictly: each fault is one sentence with file, key, got and expected."""

import tomllib
from importlib import resources

import pytest

from hogbatch.errors import UsageError
from hogbatch.simulate.hardware.description import bundled_names, parse_server, read_server, to_toml

TEXT = (
    resources.files("hogbatch.simulate.hardware")
    .joinpath("bundled", "epyc-2cores.toml")
    .read_text("utf-8")
)


def changed(old, new):
    assert TEXT.count(old) >= 1
    return TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name =", ["not valid TOML"]),
        (changed("[cpu]\n", "[cpu]\nspeed = 3\n"), ["cpu.speed is unknown", "threads, cores"]),
        (changed("cores = 2\n", ""), ["cpu.cores is missing", "a whole number above 0"]),
        (changed("threads = 2\n", "threads = true\n"), ["cpu.threads", "whole number", "True"]),
        (changed("threads = 2\n", "threads = 1\n"), ["cpu.threads", "at least cpu.cores", "1"]),
        (changed("cores_per_cache = 2", "cores_per_cache = 99"), ["cores_per_cache", "99"]),
        (changed("smt_gain = 1.0", "smt_gain = inf"), ["cpu.smt_gain", "a number above 0", "inf"]),
        (changed('ordinal = "host"', 'ordinal = "gpu"'), ["gpus[0].ordinal", '"host"', "'gpu'"]),
        (changed("[cpu.sources]\n", '[cpu.sources]\ngone = "x"\n'), ["sources.gone names no"]),
        (changed("name =", "base_on = 'a'\nname ="), ["key base_on is unknown", "based_on"]),
        (changed("[cpu]\n", "[cpu]\nfactors = {}\n"), ["cpu.factors needs the key based_on"]),
        (TEXT + TEXT[TEXT.index("[[gpus]]") :], ["gpus.ordinal", "different", "['host', 'host']"]),
    ],
)
def test_a_fault_is_one_sentence(text, parts):
    with pytest.raises(UsageError) as caught:
        parse_server(text, "mine.toml")
    message = str(caught.value)
    assert message.startswith("mine.toml: ")
    assert "\n" not in message.strip()
    for part in parts:
        assert part in message


def test_an_empty_source_is_refused():
    lines = [line for line in TEXT.splitlines() if not line.startswith("source = ")]
    with pytest.raises(UsageError, match=r"source is missing; expected text"):
        parse_server("\n".join(lines), "mine.toml")


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.toml.*epyc-2cores.*No such file"):
        read_server(str(tmp_path / "gone.toml"))


@pytest.mark.parametrize("name", bundled_names())
def test_a_written_description_is_complete(name):
    text = to_toml(read_server(name))
    assert "based_on" not in tomllib.loads(text)
    assert to_toml(parse_server(text, name)) == text
    assert name != "epyc-2cores" or parse_server(text, name) == read_server(name)
