"""A GPU worker with too little memory for its batches."""

ROWS, EPOCHS = 32_561, 2  # of a9a
MEMORY = 20_000_000  # bytes; activations of 16384 rows take 8 MB a layer

SCARCE = """
import sys
from pathlib import Path
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers.gpu import GpuEngine
from hogbatch.workers.start import run

memory = int(sys.argv[2])
run(Path(sys.argv[1]), GpuEngine("gpu:host", lambda precision: HostDevice(memory)), None)
"""


def test_batches_shrink_until_they_fit_and_every_row_is_done_once(job):
    (job.folder / "scarce.py").write_text(SCARCE)
    flags = ("--hidden", 128, "--gpu-batch", "64:16384", "--policy", "hogbatch")
    job.coordinate("a9a", "--epochs", EPOCHS, *flags, "--optimizer", "adam")
    worker = job._start("scarce", job.run_dir, MEMORY)
    assert job.finish() == 0 and worker.returncode == 0

    steps = [(event["from"], event["to"]) for event in job.events("out_of_memory")]
    assert steps and steps[0][0] == 16384
    assert all(smaller == size // 2 for size, smaller in steps)
    (account,) = job.summary()["workers"]
    assert [size for _, size in account["batch_trace"]] == [16384, *(to for _, to in steps)]
    assert "gpu-0 ran out of memory: batch size 16384 -> 8192" in (job.folder / "0.out").read_text()
    for epoch in range(EPOCHS):
        ranges = sorted(e["rows"] for e in job.events("lease") if e["epoch"] == epoch)
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == ROWS
    assert account["rows"] == EPOCHS * ROWS
    assert job.summary()["faults"]["workers_lost"] == 0
