from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.run.results import Run


def test_a_run_that_trained_on_no_row_has_no_model(tmp_path):
    summary = {"status": "stopped", "validation": None, "test": None}
    run = Run(Path("there"), None, summary, 130, "fast", ())
    assert run.test_loss is None
    for use in (lambda: run.model, lambda: run.save(tmp_path / "model.safetensors")):
        with pytest.raises(UsageError, match=r"there ended before any row .* \(stopped\)"):
            use()
    assert not (tmp_path / "model.safetensors").exists()
