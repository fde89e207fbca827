"""The worker processes: `python -m workers.cpu RUN_DIR` and `python -m workers.gpu RUN_DIR`.

The library does not import this package; the launcher starts the modules by name.
"""

import os

# A worker starts its own threads; BLAS threads would only compete with them for the cores. This
# must be set before NumPy is imported, and this file is the first that a worker runs.
for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
