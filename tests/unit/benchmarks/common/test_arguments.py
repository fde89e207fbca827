import pytest

from benchmarks.common import arguments


def test_results_need_an_existing_directory_before_the_first_measurement(tmp_path, capsys):
    parser = arguments.parser("any", None)
    arguments.add_json(parser)
    assert parser.parse_args(["--json", "out.json"]).json.name == "out.json"
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args(["--json", str(tmp_path / "absent" / "out.json")])
    assert stopped.value.code == 2
    assert f"--json: the directory {tmp_path / 'absent'} does not exist" in capsys.readouterr().err
