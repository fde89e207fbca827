"""A GPU worker on the host whose third change is not finite.

python -m tests.support.faulty_gpu_worker RUN_DIR
"""

import numpy as np

from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers.gpu import GpuEngine
from hogbatch.workers.start import parser, run
from tests.support.limited_devices import Kernels


class Spoiling(HostDevice):
    def __init__(self):
        super().__init__()
        self.kernels = Kernels(hand_over=self._hand_over)
        self.changes = 0

    def _hand_over(self, pulled, params, base, seen, change, finite):
        self.changes += not np.array_equal(params, base)  # merges are tried without a change first
        if self.changes == 3:
            self.changes += 1
            params[5] = np.nan
        HostDevice.kernels.hand_over(pulled, params, base, seen, change, finite)


if __name__ == "__main__":
    given = parser("gpu", "Attach a GPU worker that spoils a change.").parse_args()
    run(given.run_dir, GpuEngine("gpu:host", lambda precision: Spoiling()), given.launched)
