"""Run directories made of events."""

import pytest

from tests.support.run_events import lines_of


@pytest.fixture
def write_run(tmp_path):
    """Create a run directory with these events and other files; return its path."""

    def write(*events, name="run", **files):
        run_dir = tmp_path / name
        run_dir.mkdir()
        (run_dir / "run.json").write_text('{"format": "hogbatch-run-1", "files": []}')
        if events:
            (run_dir / "events.jsonl").write_text(lines_of(*events))
        for file, content in files.items():
            suffix = ".toml" if file == "config" else ".json"
            (run_dir / f"{file}{suffix}").write_text(content)
        return run_dir

    return write
