"""Entries of the data cache, model files and checkpoints whose checksums are valid are used or
refused, whatever they contain: no traceback, no signal, no endless loop.
"""

import json
import selectors
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from benchmarks.common.job import WITHIN_S
from tests.support import prepared_files
from tests.support.prepared_files import KINDS
from tests.support.property_tests import max_examples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return the folder with the files of a kind, unchanged."""
    folder = tmp_path_factory.mktemp("prepared")

    def of(kind):
        if not (own := folder / kind / "original").exists():
            own.parent.mkdir()
            prepared_files.originals(kind, own)
        return own

    return of


@pytest.fixture(scope="module")
def use():
    """Let another process use the files of a folder; return its answer."""
    command = [sys.executable, "-m", "tests.support.prepared_user"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        waiting = selectors.DefaultSelector()
        waiting.register(process.stdout, selectors.EVENT_READ)

        def answer(kind, folder):
            print(json.dumps([kind, str(folder)]), file=process.stdin, flush=True)
            assert waiting.select(WITHIN_S), "no end"
            line = process.stdout.readline()
            assert line, f"ended with {process.wait()}"
            return json.loads(line)

        yield answer
        process.stdin.close()


@pytest.mark.parametrize("kind", KINDS)
def test_unchanged_files_are_used(kind, originals, use):
    original = originals(kind)
    folder = shutil.copytree(original, original.with_name("copy"))
    assert use(kind, folder) == ["used", ""]
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", KINDS)
@max_examples(25)
@given(random=st.randoms(use_true_random=True))
def test_changed_files_are_used_or_refused(kind, originals, use, random):
    original = originals(kind)
    folder = shutil.copytree(original, original.with_name("changed"), dirs_exist_ok=True)
    prepared_files.mutate(kind, folder, random)
    outcome, reason = use(kind, folder)
    shutil.rmtree(folder)
    assert outcome in ("used", "refused"), reason
