import pytest

from hogbatch.errors import NoWorkers
from hogbatch.events.crash import crash_report
from hogbatch.wire.messages import Failed, Heartbeat

HEARD = [(1.25, "cpu-0", Heartbeat()), (2.5, "gpu-0", Failed("out of luck"))]


@pytest.mark.parametrize("folder", ["", "gone"])
def test_a_bug_leaves_a_report_and_says_so(tmp_path, folder):
    path = tmp_path / folder / "crash.txt"
    with pytest.raises(ZeroDivisionError) as raised, crash_report(path, 'data = "a9a"\n', HEARD):
        _ = 1 / 0
    (note,) = raised.value.__notes__
    if folder:
        assert note == f"hogbatch: this is a bug; {path} was not written: No such file or directory"
        return
    assert note == f"hogbatch: this is a bug; please report it, with {path}"
    report = path.read_text()
    for part in (
        "# Traceback\n\nTraceback (most recent call last)",
        "ZeroDivisionError: division by zero",
        *("\nPython 3.", "\nhogbatch 0.", "\nnumba 0.", '# Configuration\n\ndata = "a9a"\n'),
        "# The last 2 messages: seconds, worker, message\n\n"
        "1.2500 cpu-0 Heartbeat(compiling=False)\n2.5000 gpu-0 Failed(reason='out of luck')\n",
    ):
        assert part in report


@pytest.mark.parametrize("error", [NoWorkers("all are gone"), KeyboardInterrupt()])
def test_an_expected_error_leaves_no_report(tmp_path, error):
    with pytest.raises(type(error)) as raised, crash_report(tmp_path / "crash.txt", "", []):
        raise error
    assert not hasattr(raised.value, "__notes__")
    assert list(tmp_path.iterdir()) == []
