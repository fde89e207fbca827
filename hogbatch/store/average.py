"""The moving mean of a model that is being trained, to be evaluated and kept in its place.

Steps of constant size end in noise around a solution, and their mean is closer to it (Polyak &
Juditsky 1992; of whole networks: Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima").
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hogbatch.store.model import SharedModel

LEAST_FRACTION = 0.1  # of the newest sample in the mean
START = 3.0  # the first samples count for more: sample t has the share START / (t + START - 1)
EVERY_S = 0.1  # between two samples, unless
LOAD = 0.05  # they would take more than this share of a core
TOGETHER = 1 << 18  # floats that are taken in or change places at a time


class MovingMean:
    """The mean of a model's parameters over samples, the later the heavier.

    While it is shown, it lies in the place of the parameters, and these beside it.
    """

    def __init__(self, model: SharedModel) -> None:
        self._model, self._params = model, model.params
        self._other = np.empty(0, np.float32)  # [P] from the first sample on
        self._samples = 0
        self._updates = 0  # of the model at the last sample
        self._hidden = threading.Lock()  # held while the mean is shown, or changes

    def show(self, shown: bool) -> None:
        """Sample the model once more, and show the mean; or put the model back.

        Nobody may write the parameters from the one to the other.
        """
        if shown:
            self._hidden.acquire()
            self._sample()
        for start in range(0, len(self._params), TOGETHER):
            model, other = (each[start : start + TOGETHER] for each in (self._params, self._other))
            before = model.copy()
            model[:] = other
            other[:] = before
        if not shown:
            self._hidden.release()

    def forget(self) -> None:
        """Begin the mean anew, with the parameters as they are; nobody may write them."""
        with self._hidden:
            self._samples = 0
            self._other = np.empty(0, np.float32)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample by a thread beside, as long as the model is trained."""
        ended = threading.Event()
        thread = threading.Thread(target=self._keep_sampling, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _keep_sampling(self, ended: threading.Event) -> None:
        pause = EVERY_S
        while not ended.wait(pause):
            with self._hidden:
                began = time.thread_time()
                if self._model.updates > self._updates:
                    self._sample()
                pause = max(EVERY_S, (time.thread_time() - began) / LOAD)

    def _sample(self) -> None:
        """Take the parameters into the mean, as they are; workers may be writing them."""
        self._samples += 1
        self._updates = self._model.updates
        if not len(self._other):
            self._other = self._params.copy()
        fraction = np.float32(max(LEAST_FRACTION, START / (self._samples + START - 1)))
        for start in range(0, len(self._params), TOGETHER):
            model, mean = (each[start : start + TOGETHER] for each in (self._params, self._other))
            mean += fraction * (model - mean)
