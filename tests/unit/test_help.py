"""The help texts of all commands, compared with the files in `snapshots`.

After a deliberate change, update the files with
`HOGBATCH_UPDATE_SNAPSHOTS=1 scripts/test tests/unit/test_help.py` and review them with `git diff`.
"""

import os
from pathlib import Path

import pytest

from hogbatch.cli import main as cli
from hogbatch.config.flags import Group
from hogbatch.config.train import FLAGS
from hogbatch.workers import cpu, gpu

SNAPSHOTS = Path(__file__).parent / "snapshots"
WORKERS = {"worker_cpu": cpu, "worker_gpu": gpu}


def help_text(command, monkeypatch, capsys):
    """The output of `hogbatch COMMAND --help` on a terminal of 100 columns without colours."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    if command in WORKERS:
        monkeypatch.setattr("sys.argv", ["worker", "--help"])
        with pytest.raises(SystemExit, match="0"):
            WORKERS[command].main()
    elif command in ("overview", "worker"):  # their texts do not come from argparse
        assert cli.main(["worker", "--help"] if command == "worker" else ["--help"]) == 0
    else:
        with pytest.raises(SystemExit, match="0"):
            cli.main([command, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["overview", *cli.COMMANDS, *WORKERS])
def test_help_is_as_in_the_snapshot(command, monkeypatch, capsys):
    text = help_text(command, monkeypatch, capsys)
    path = SNAPSHOTS / f"help_{command}.txt"
    if os.environ.get("HOGBATCH_UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text(), "see the docstring of this module for how to update it"


def test_every_snapshot_is_compared():
    commands = ["overview", *cli.COMMANDS, *WORKERS]
    assert {path.name for path in SNAPSHOTS.iterdir()} == {f"help_{name}.txt" for name in commands}


def test_every_flag_is_listed_in_its_group(monkeypatch, capsys):
    lines = help_text("train", monkeypatch, capsys).splitlines()
    assert lines[0] == "usage: hogbatch train [DATA] [options]"
    listed, group = {}, ""
    for line in lines:
        if line.endswith(":") and not line.startswith(" "):
            group = line[:-1]
        elif line.startswith("  ") and not line.startswith("   "):
            shown = [word.strip(",") for word in line.split() if word.startswith(("--", "DATA"))]
            listed[shown[0].lower().removeprefix("--").replace("-", "_")] = group
    assert {name: listed[name] for name in FLAGS} == {name: f.group for name, f in FLAGS.items()}
    headings = [line[:-1] for line in lines if line[:-1] in list(Group) and line.endswith(":")]
    assert headings == list(Group)


@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
def test_help_texts_are_phrases(flag):
    assert not flag.help.endswith(".")
    first = flag.help.split()[0]
    assert first[0].islower() or first.isupper() or first == "L2"
