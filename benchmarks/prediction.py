"""Latency of one row and rows per second of many, beside ONNX Runtime and scikit-learn, in one run.

The networks have two hidden layers of 512 units. Their weights are those after one epoch on random
rows: the time does not depend on them.

    scripts/bench prediction [--times 2000] [--rows 1000000] [--json FILE]
"""

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime
import pandas
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

import hogbatch
from benchmarks.common import arguments, report
from hogbatch.export import write

Floats = NDArray[np.float32]
TRAINING_ROWS, FIRST_CALLS = 4000, 100


def main(flags: Sequence[str] | None = None) -> None:
    """Measure every program; print a line for each."""
    parser = arguments.parser("prediction", __doc__)
    parser.add_argument("--times", type=int, default=2000, help="calls with one row")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of one call")
    arguments.add_json(parser)
    options = parser.parse_args(flags)
    results: list[dict[str, Any]] = []
    for features, rows in ((123, TRAINING_ROWS), (20, options.rows)):
        exact = np.random.default_rng(1).normal(size=(rows, features))
        X = exact.astype(np.float32)
        for name, call in programs(X[:TRAINING_ROWS]).items():
            given: Any = exact if name == "ONNX Runtime" else X  # exported models take float64
            times = FIRST_CALLS + options.times
            one = [seconds(call, given[:1]) for _ in range(times)][FIRST_CALLS:]
            p50, p99 = np.percentile(one, [50, 99]).tolist()
            many = rows / min(seconds(call, given) for _ in range(2)) if name in MANY else None
            result = {"features": features, "program": name, "p50_s": p50, "p99_s": p99}
            results.append(result | {"rows": rows, "rows_per_second": many})
            speed = "" if many is None else f", {rows:,} rows: {many:,.0f} rows/s"
            print(f"{features} features, {name}: {1e6 * p50:.0f} us, p99 {1e6 * p99:.0f} us{speed}")
    report.write(options.json, results)


MANY = ("hogbatch", "ONNX Runtime", "scikit-learn")


def programs(X: Floats) -> dict[str, Callable[[Floats], Any]]:
    """What computes the probabilities of rows, by the name of the program."""
    y = X[:, 0] > 0
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        path = Path(folder) / "model.safetensors"
        run = hogbatch.train(X, y, hidden=(512, 512), epochs=1, members=1, verbose=False)
        run.save(path)
        session = onnxruntime.InferenceSession(write.export(str(path), "onnx"))
        peer = MLPClassifier((512, 512), max_iter=1).fit(X, y)
    model, (given,) = run.model, session.get_inputs()
    frame = pandas.DataFrame(X, columns=[f"n{n}" for n in range(X.shape[1])])
    named = hogbatch.train(frame, y, hidden=(512, 512), epochs=1, members=1, verbose=False).model
    row, cells = frame[:1], dict(zip(frame, X[0].tolist(), strict=True))
    return {
        "hogbatch": model.predict_proba,
        "hogbatch, dict": lambda _: named.predict_proba(cells),
        "hogbatch, data frame": lambda _: named.predict_proba(row),
        "ONNX Runtime": lambda rows: session.run(None, {given.name: rows}),
        "scikit-learn": peer.predict_proba,
    }


def seconds(call: Callable[[Floats], Any], rows: Floats) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call(rows)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
