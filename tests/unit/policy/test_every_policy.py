"""Requirements on every built-in batch policy; a new entry of POLICIES is tested here."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hogbatch.cli.main import main
from hogbatch.policy.base import PolicySettings, WorkerView
from hogbatch.policy.choose import POLICIES, find
from tests.support.property_tests import max_examples

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


@st.composite
def views(draw):
    smallest = draw(st.integers(1, 100))
    largest = draw(st.integers(smallest, 10_000))
    return WorkerView(
        device=draw(st.sampled_from(["cpu", "gpu"])),
        teams=draw(st.integers(1, 8)),
        smallest=smallest,
        largest=largest,
        batch_size=draw(st.integers(smallest, largest)),
        updates=draw(st.floats(0, 1e9)),
        seconds_per_row=draw(st.one_of(st.just(float("nan")), st.floats(1e-9, 10))),
    )


@pytest.mark.parametrize("name", POLICIES)
@max_examples(25)
@given(worker=views(), others=st.lists(views(), max_size=5))
def test_sizes_are_within_the_limits_and_depend_on_the_arguments_alone(name, worker, others):
    others.sort(key=lambda view: view.updates)
    policy = find(name)(PolicySettings())
    for ask in (lambda: policy.first_size(worker), lambda: policy.next_size(worker, others)):
        assert worker.smallest <= ask() <= worker.largest
        assert ask() == ask()


@pytest.mark.parametrize("name", POLICIES)
def test_the_help_and_the_readme_name_it(name, capsys):
    with suppress(SystemExit):
        main(["train", "--help"])
    choices = re.search(r"--policy (\S+)", capsys.readouterr().out)
    assert choices and name in choices[1].split("|")
    assert f"| `{name}`" in PAGE.read_text(encoding="utf-8")
