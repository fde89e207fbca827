"""The processes of a run: opens the control and data plane, and launches workers."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from hogbatch.config.values import WorkerRequest
from hogbatch.run.launch.claims import pinning
from hogbatch.run.launch.local import LEAVE_WITHIN_S, LocalLauncher
from hogbatch.run.segments import RunSegments
from hogbatch.store.attach import PublishedSegments
from hogbatch.wire.address import Address, RunLock
from hogbatch.wire.sockets import Router


@contextmanager
def open_planes(
    run_dir: Path, segments: RunSegments, run_lock: RunLock
) -> Iterator[tuple[Router, PublishedSegments]]:
    """Open the control and data plane, and publish their addresses to workers."""
    named = {"data": segments.data, "shared": segments.shared}
    with (
        closing(Router(run_dir)) as router,
        closing(PublishedSegments(segments.fingerprint, segments.features, named)) as published,
    ):
        run_lock.publish(
            Address(
                run=run_dir.name,
                pid=os.getpid(),
                control=router.address,
                store=published.address,
                since=datetime.now().isoformat(timespec="seconds"),
            )
        )
        yield router, published


@contextmanager
def launched_workers(
    requests: tuple[WorkerRequest, ...], run_dir: Path, pin: bool
) -> Iterator[LocalLauncher]:
    """Start the requested workers; all of them have ended when the context exits."""
    launcher = LocalLauncher()
    with pinning(requests) if pin else nullcontext([()] * len(requests)) as cores_by_worker:
        try:
            for request, cores in zip(requests, cores_by_worker, strict=True):
                launcher.start(request, run_dir, cores)
            yield launcher
        except BaseException:
            launcher.stop(patience_s=0.0)  # the workers have not been told to stop
            raise
        launcher.stop(LEAVE_WITHIN_S)
