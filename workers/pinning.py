"""Pinning of threads to cores."""

import logging
import os


def pin(core: int) -> None:
    """Pin this thread, and no other thread of the process, to `core`."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:  # the core has gone offline; continue without it
        logging.warning("a thread is not pinned to core %d: %s", core, error.strerror)
