"""The processes that compute: `python -m workers.cpu RUN_DIR` and `python -m workers.gpu RUN_DIR`.

Nothing in the library imports them; the launcher knows their names as text.
"""

import os

# A worker brings its own threads; a BLAS that brings more would only fight them for the cores.
# This must happen before NumPy is imported, and this file is the first that a worker runs.
for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR", "NUMBA"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
