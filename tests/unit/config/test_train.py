import argparse
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hogbatch.config.arguments import add_flags
from hogbatch.config.sources import flag_value, merge_sources, to_toml
from hogbatch.config.train import FLAGS, TrainConfig
from hogbatch.config.values import BatchLimits, WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.kernels.contract import ACTIVATIONS
from hogbatch.policy.learning_rate import SCALINGS, SCHEDULES
from tests.support.property_tests import max_examples

ONE_THREAD = (WorkerRequest("cpu", threads=1),)


def from_command_line(*arguments):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return merge_sources(vars(parser.parse_args(arguments)))


@pytest.fixture
def toml(tmp_path):
    """A function that writes a configuration file and returns its path."""

    def write(text):
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def test_flags_are_converted_to_their_types():
    config = from_command_line(
        *("x.svm", "--test", "y.svm", "--hidden", "512, 512", "--lr", "1e-3", "--seed", "7", "-q"),
        *("--scale", "max", "--workers", "cpu:2,gpu:0,gpu:host", "--gpu-batch", "64:8192"),
        *("--policy", "mine:Own"),
    )
    assert config == TrainConfig(
        "x.svm",
        test="y.svm",
        hidden=(512, 512),
        lr=0.001,
        seed=7,
        scale="max",
        quiet=True,
        workers=(
            WorkerRequest("cpu", threads=2),
            WorkerRequest("gpu", ordinal=0),
            WorkerRequest("gpu", ordinal="host"),
        ),
        gpu_batch=BatchLimits(64, 8192),
        policy="mine:Own",
    )


def test_data_alone_gives_the_defaults():
    assert from_command_line("a9a") == TrainConfig("a9a")
    assert list(FLAGS) == [field.name for field in fields(TrainConfig)]
    assert FLAGS["lr_scaling"].metavar.split("|") == ["auto", *SCALINGS]
    assert FLAGS["schedule"].metavar.split("|") == ["auto", *SCHEDULES]
    assert {"linear", *FLAGS["activation"].metavar.split("|")} == set(ACTIVATIONS)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("hidden", "", ()),
        ("cpu_batch", "16", BatchLimits(16, 16)),
        *(("cpu_teams", *pair) for pair in (("auto", None), ("2", 2), (3, 3), (None, None))),
    ],
)
def test_values_of_several_forms(name, given, value):
    assert getattr(merge_sources({"data": "x", name: given}), name) == value


def test_python_values_are_accepted():
    config = merge_sources(
        {"data": Path("x"), "hidden": [8], "max_seconds": 60, "workers": ONE_THREAD, "lr": None}
    )
    assert config == TrainConfig("x", hidden=(8,), max_seconds=60.0, workers=ONE_THREAD)


def test_flags_override_the_file_and_the_file_overrides_the_defaults(toml):
    text = 'data = "x"\nlr = 1\nlr-scaling = "sqrt"\nmax_seconds = 5\nquiet = true\n'
    parser = argparse.ArgumentParser()
    add_flags(parser, ["data", "lr", "quiet"])
    assert "--hidden" not in parser.format_help()
    flags = vars(parser.parse_args(["--lr", "0.5", "--no-quiet"]))
    config = merge_sources(flags, toml(text))
    assert config == TrainConfig("x", lr=0.5, lr_scaling="sqrt", max_seconds=5.0)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hiden", 1, "unknown key 'hiden'; the nearest is 'hidden'"),
        ("lr_scalling", "x", "unknown key 'lr_scalling'; the nearest is 'lr-scaling'"),
        ("learning_rate", 1, "unknown key 'learning_rate'; the nearest is 'lr'"),
        ("colour", "red", "unknown key 'colour'; hogbatch train --help lists all keys"),
        ("test", b"x", "test: expected text in UTF-8; got b'x'"),
        ("epochs", "many", "epochs: expected a whole number; got 'many'"),
        ("epochs", 1.5, "epochs: expected a whole number; got 1.5"),
        ("epochs", "0", "epochs must be above 0; got 0"),
        ("lr", "fast", "lr: expected a number; got 'fast'"),
        ("lr", 10**400, "lr: expected a number; got 1000"),
        ("lr", "-0.1", "lr must be above 0; got -0.1"),
        ("lr", "nan", "lr must be above 0; got nan"),
        ("max-seconds", "inf", "max-seconds must be above 0; got inf"),
        ("l2", "-1", "l2 must be 0 or more; got -1.0"),
        ("alpha", "1", "alpha must be above 1; got 1.0"),
        ("test-fraction", "1", "test-fraction must be at least 0 and below 1; got 1.0"),
        ("loss", "quantile:95", "quantile:0.5, poisson, quantile:Q; got 'quantile:95'"),
        ("loss", "quantile:0.0", "quantile:0.5, poisson, quantile:Q; got 'quantile:0.0'"),
        ("seed", str(2**63), "seed must be from 0 to 2^63 - 1; got 9223372036854775808"),
        ("quiet", "yes", "quiet: expected true or false; got 'yes'"),
        (
            "scale",
            "yes",
            "scale must be one of auto, none, standard, max, robust, ple, quantile; got 'yes'",
        ),
        ("hidden", "512,", "hidden: expected whole numbers as in \"512,512\"; got '512,'"),
        ("hidden", "512,0", "hidden must be above 0; got 0"),
        ("hidden", [512.0], 'hidden: expected whole numbers as in "512,512"; got [512.0]'),
        (
            "policy",
            "adaptve",
            "policy must be one of adaptive, paper-adaptive, hogbatch, fixed, module:Class; got",
        ),
        (
            "label-vectors",
            "3:0.5:0.0",
            "label-vectors must be one of auto, on, off, WEIGHT:EXPONENT[:TEMPERATURE]; got "
            "'3:0.5:0.0'",
        ),
        ("nearest-rows", "on", "nearest-rows must be one of auto, off, WEIGHT; got 'on'"),
        ("cpu-batch", "1:x", "cpu-batch: expected rows as in \"1:64\"; got '1:x'"),
        ("cpu-batch", "64:1", "cpu-batch: batch limits are reversed: expected MIN:MAX; got 64:1"),
        ("gpu-batch", "0:9", "gpu-batch: batch limits must be at least 1 row; got 0:9"),
        ("workers", "cpu:0", "workers: expected auto or a list of cpu:THREADS, gpu:N, gpu:host"),
        ("workers", "gpu:1,tpu:0", "gpu:host; got 'tpu:0'"),
        ("workers", (), 'workers: expected workers as in "cpu:2,gpu:0"; got ()'),
        ("cpu-teams", "two", "cpu-teams: expected auto or a whole number; got 'two'"),
        ("cpu-teams", True, "cpu-teams: expected auto or a whole number; got True"),
        ("staleness-damping", "x", "staleness-damping must be one of auto, per-weight, root, off"),
        ("data", "", "DATA is missing"),
        ("data", "\udcff", "data: expected text in UTF-8; got '\\udcff'"),
    ],
)
def test_an_invalid_value_is_refused_in_one_sentence(key, value, message):
    with pytest.raises(UsageError) as refusal:
        merge_sources({"data": "x", key: value})
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_choice_may_be_a_number_in_a_file(toml):
    config = merge_sources({"data": "x"}, toml("temperature = 1.5\nindex-base = 1\n"))
    assert (config.temperature, config.index_base) == ("1.5", "1")
    with pytest.raises(UsageError, match="header must be one of auto, yes, no; got 'True'"):
        merge_sources({"data": "x"}, toml("header = true\n"))


def test_a_file_may_begin_with_a_byte_order_mark(toml):
    assert merge_sources({"data": "x"}, toml("\ufefflr = 0.5\n")).lr == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hiden = 1", "unknown key 'hiden'; the nearest is 'hidden'"),
        ('lr = "0.1"', "lr: expected a number; got '0.1'"),
        ("data = 3", "data: expected text in UTF-8; got 3"),
        ("[lr]\nx = 1", "lr: expected a number; got {'x': 1}"),
        ('cpu-batch = "9:1"', "cpu-batch: batch limits are reversed"),
        ('lr-scaling = "sqrt"\nlr_scaling = "none"', "lr-scaling is given twice"),
        ("lr = = 1", "expected a TOML file; Invalid value (at line 1"),
    ],
)
def test_an_error_in_a_file_names_the_file(toml, text, message):
    file = toml(text)
    with pytest.raises(UsageError) as refusal:
        merge_sources({"data": "x"}, file)
    assert f"{file}: {message}" in str(refusal.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    for name in ("missing.toml", "binary.toml", "."):
        with pytest.raises(UsageError, match=str(tmp_path / name)):
            merge_sources({"data": "x"}, tmp_path / name)


def test_deterministic_uses_one_cpu_thread():
    settings = {"data": "x", "deterministic": True}
    for workers in ("auto", "cpu:1"):
        assert merge_sources(settings | {"workers": workers}).workers == ONE_THREAD
    for workers in ("cpu:2", "gpu:host", "cpu:1,cpu:1"):
        with pytest.raises(UsageError, match=f"deterministic needs workers cpu:1; got {workers}"):
            merge_sources(settings | {"workers": workers})


positive = st.floats(1e-300, 1e300)
names = st.text(min_size=1)
workers = st.one_of(
    st.builds(WorkerRequest, st.just("cpu"), threads=st.integers(1, 99)),
    st.builds(WorkerRequest, st.just("gpu"), ordinal=st.integers(0, 9) | st.just("host")),
)
limits = st.lists(st.integers(1, 10**6), min_size=2, max_size=2).map(
    lambda ends: BatchLimits(*sorted(ends))
)
configs = st.builds(
    TrainConfig,
    data=names,
    run_dir=st.none() | names,
    hidden=st.lists(st.integers(1, 9999), max_size=3).map(tuple),
    lr=st.none() | positive,
    max_seconds=st.none() | positive,
    seed=st.integers(0, 2**63 - 1),
    quiet=st.booleans(),
    workers=st.just("auto") | st.lists(workers, min_size=1).map(tuple),
    cpu_teams=st.none() | st.integers(1, 99),
    gpu_batch=st.none() | limits,
    merge_every=st.none() | st.integers(1, 99),
    staleness_damping=st.sampled_from(["per-weight", "root", "off", "auto"]),
)


@max_examples(60)
@given(configs)
def test_a_configuration_is_read_back_from_its_file(tmp_path_factory, config):
    file = tmp_path_factory.getbasetemp() / "round_trip.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    assert merge_sources({}, file) == config


def test_the_file_contains_flag_names_and_plain_values():
    written = tomllib.loads(to_toml(replace(TrainConfig("x"), hidden=(4, 2), quiet=True)))
    expected = {"lr-scaling": "auto", "hidden": [4, 2], "quiet": True, "lease-ms": 50.0}
    assert written.items() >= expected.items() and "gpu-batch" not in written


@pytest.mark.parametrize("name", ["data", "test", "run_dir", "resume", "data_cache"])
def test_a_path_may_begin_with_the_home_directory(name, toml, monkeypatch):
    monkeypatch.setenv("HOME", "/home/of/me")
    for path in ("~/x", Path("~/x")):
        assert getattr(merge_sources({"data": "d", name: path}), name) == "/home/of/me/x"
    config = merge_sources({"data": "d"} if name != "data" else {}, toml(f'{name} = "~/x"\n'))
    assert getattr(config, name) == "/home/of/me/x"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("bad_lines", "1.1", "bad-lines must be from 0 to 1; got 1.1"),
        ("bad_lines", "nan", "bad-lines must be from 0 to 1; got nan"),
        ("header", "maybe", "header must be one of auto, yes, no; got 'maybe'"),
    ],
)
def test_a_flag_of_another_command_is_valid_under_the_same_conditions(name, text, complaint):
    with pytest.raises(UsageError, match=complaint):
        flag_value(name, text)
