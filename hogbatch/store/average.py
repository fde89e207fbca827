"""The moving mean of the parameters during training; it is evaluated and saved as the model.

With a constant learning rate the parameters fluctuate around a solution, and their mean is closer
to it (Polyak & Juditsky 1992; Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima").
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hogbatch.store.layout import chunks
from hogbatch.store.model import SharedModel

MIN_WEIGHT = 0.1  # minimum weight of the newest sample in the mean
# The first samples count for more: the weight of sample t is
# INITIAL_WEIGHT / (t + INITIAL_WEIGHT - 1).
INITIAL_WEIGHT = 3.0
INTERVAL_S = 0.1  # minimum time between two samples,
MAX_LOAD = 0.05  # increased so that sampling takes at most this fraction of a core
BLOCK_VALUES = 1 << 18  # floats that are averaged or exchanged at a time


def exchange(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    """Exchange the contents of two arrays [P], with little memory."""
    for block in chunks(len(one), BLOCK_VALUES):
        before = one[block].copy()
        one[block] = other[block]
        other[block] = before


class MovingMean:
    """A weighted mean of samples of a model's parameters; later samples have more weight.

    While the mean is shown, it is stored in the model and the parameters are in the buffer.
    """

    def __init__(self, model: SharedModel, sampled: NDArray[np.float32] | None = None) -> None:
        """The mean of `model`, or of `sampled`[P], which must be equal to it where it is shown."""
        self._model, self._params = model, model.params
        self._sampled = self._params if sampled is None else sampled
        self._mean_buffer = np.empty(0, np.float32)  # [P] if sampling, or after the first sample
        self._samples = 0
        self._updates = 0  # of the model at the last sample
        self._lock = threading.Lock()  # held while the mean is shown or updated

    def show(self, shown: bool) -> None:
        """Take a sample and put the mean into the model; with False, restore the parameters.

        No worker may write the parameters between the two calls.
        """
        if shown:
            self._lock.acquire()
            self._sample()
        exchange(self._params, self._mean_buffer)
        if not shown:
            self._lock.release()

    def reset(self) -> None:
        """Discard all samples. No worker may write the parameters meanwhile."""
        with self._lock:
            self._samples = 0

    def sample_change(self) -> None:
        """Add the current parameters to the mean, if they have changed since the last sample.

        Does nothing while the mean is shown; so a thread that shows it may call this.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._model.updates > self._updates:
                    self._sample()
            finally:
                self._lock.release()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Take samples in a background thread while the body runs."""
        self._mean_buffer = self._sampled.copy()  # now: workers wait while it is first shown
        ended = threading.Event()
        thread = threading.Thread(target=self._keep_sampling, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _keep_sampling(self, ended: threading.Event) -> None:
        pause = INTERVAL_S
        while not ended.wait(pause):
            began = time.thread_time()
            self.sample_change()
            pause = max(INTERVAL_S, (time.thread_time() - began) / MAX_LOAD)

    def sample(self) -> None:
        """Add the current parameters to the mean."""
        with self._lock:
            self._sample()

    def _sample(self) -> None:
        """Add the current parameters to the mean; workers may be writing them."""
        self._samples += 1
        self._updates = self._model.updates
        if not len(self._mean_buffer):
            self._mean_buffer = np.empty_like(self._sampled)
        if self._samples == 1:
            np.copyto(self._mean_buffer, self._sampled)
            return
        weight = np.float32(max(MIN_WEIGHT, INITIAL_WEIGHT / (self._samples + INITIAL_WEIGHT - 1)))
        mean, sampled = self._mean_buffer, self._sampled
        for c in chunks(len(self._params), BLOCK_VALUES):
            mean[c] += weight * (sampled[c] - mean[c])
