"""How fast is text read, by one thread, by two, and from the cache, compared with other readers?

Every data set is written as plain text and repeated up to a few hundred MB, read once (which also
compiles the parser), and then by each reader in turn. hogbatch's arrays must be bit-identical to
those of the other reader.

    scripts/bench reading --data DIR --json out.json
    scripts/bench reading --data DIR --sets csv --megabytes 20 --repeats 1

DIR holds imdb-train.svm.gz, delicious-train.xmc.gz, covtype.csv.gz. scikit-learn and NumPy read
only the first part of a file, because they are slow, and XMC text without its header.

Prints a table of MB/s. For the cache these are megabytes of arrays, which are in the page cache, as
after the first run; otherwise megabytes of text.
"""

import argparse
import gc
import gzip
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.common import arguments, report
from hogbatch.data.cache import DataCache
from hogbatch.data.raw import RawSet
from hogbatch.data.readers import read


class ReadingCase(NamedTuple):
    """A data set, and the reader of another package to compare with."""

    name: str
    header: int  # number of header lines
    peer: str
    read: Callable[[Path], tuple[list[Any], Any]]  # arrays of the inputs; labels


def libsvm(path: Path) -> tuple[list[Any], Any]:
    """A svmlight file as read by scikit-learn."""
    inputs, labels = load_svmlight_file(str(path), dtype=np.float32)
    return [inputs.indptr, inputs.indices, inputs.data], labels


def xmc(path: Path) -> tuple[list[Any], Any]:
    """An XMC file without its header as read by scikit-learn, as svmlight with lists of labels."""
    inputs, lists = load_svmlight_file(
        str(path), dtype=np.float32, multilabel=True, zero_based=True
    )
    return [inputs.indptr, inputs.indices, inputs.data], np.concatenate(lists)


def csv(path: Path) -> tuple[list[Any], Any]:
    """A CSV file as read by NumPy; the label is the last column."""
    numbers = np.loadtxt(path, delimiter=",", ndmin=2)
    return [numbers[:, :-1].astype(np.float32)], numbers[:, -1]


SETS = {
    "libsvm": ReadingCase("imdb-train.svm", 0, "scikit-learn", libsvm),
    "xmc": ReadingCase("delicious-train.xmc", 1, "scikit-learn", xmc),
    "csv": ReadingCase("covtype.csv", 1, "numpy.loadtxt", csv),
}


def write(sample: ReadingCase, folder: Path, data: Path, megabytes: float) -> tuple[Path, Path]:
    """Write the repeated set for hogbatch, and its first part without a header for the peer."""
    lines = gzip.decompress((data / f"{sample.name}.gz").read_bytes()).splitlines(keepends=True)
    header, rows = lines[: sample.header], lines[sample.header :]
    times = max(1, round(megabytes * 1e6 / sum(map(len, rows))))
    if sample.read is xmc:
        _, features, labels = header[0].split()
        header = [b"%d %s %s\n" % (len(rows) * times, features, labels)]
    ours, theirs = folder / sample.name, folder / f"part-{sample.name}"
    with ours.open("wb") as file:
        file.writelines(header)
        for _ in range(times):
            file.writelines(rows)
    theirs.write_bytes(
        b"".join(rows[: max(1, int(len(rows) * min(1, 20e6 / sum(map(len, rows)))))])
    )
    return ours, theirs


def array_bytes(raw: RawSet) -> int:
    """The size of all arrays of a set."""
    arrays = [*raw.inputs, *(raw.label_lists or ()), raw.labels, raw.lines]
    return sum(array.nbytes for array in arrays if array is not None)


def keep(path: Path, cache: DataCache) -> int:
    """Put a file into the cache; returns the bytes of its arrays."""
    os.utime(path, (0, 0))  # files that were just written are not cached
    read(path, cache=cache)
    if not list(cache.directory.glob("*")):
        raise SystemExit(f"reading: {path} was not cached: is the disk nearly full?")
    return array_bytes(read(path, cache=cache))


def seconds(task: Callable[[], Any]) -> float:
    """Seconds of a call; its result is freed after the measurement."""
    gc.collect()
    start = time.perf_counter()
    result = task()
    taken = time.perf_counter() - start
    del result
    return taken


def same(sample: ReadingCase, ours: RawSet, theirs: tuple[list[Any], Any]) -> bool:
    """Whether the first rows of `ours` are bit-identical to `theirs`."""
    inputs, labels = theirs
    rows = len(inputs[0]) - (len(inputs) == 3)
    if sample.read is csv:
        assert ours.labels is not None
        pairs: list[tuple[Any, Any]] = [
            (ours.inputs.dense[:rows], inputs[0]),
            (ours.labels[:rows], labels),
        ]
    else:
        values = int(ours.inputs.indptr[rows])
        first: Any = ours.labels[:rows] if ours.labels is not None else np.empty(0)
        if ours.label_lists is not None:
            first = ours.label_lists.indices[: int(ours.label_lists.indptr[rows])]
        pairs = [
            (ours.inputs.indptr[: rows + 1], inputs[0]),
            (ours.inputs.indices[:values], inputs[1]),
            (ours.inputs.values[:values].view(np.uint32), inputs[2].view(np.uint32)),
            (first, labels),
        ]
    return all(np.array_equal(one, other) for one, other in pairs)


def measure(sample: ReadingCase, given: argparse.Namespace) -> dict[str, Any]:
    """MB/s of every reader: medians over repetitions in turn."""
    with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
        ours, theirs = write(sample, Path(folder), given.data, given.megabytes)
        identical = same(sample, read(ours), sample.read(theirs))
        cache = DataCache(Path(folder) / "cache", min_parse_s=0.0)
        stored, (text, part) = keep(ours, cache), (each.stat().st_size for each in (ours, theirs))
        readers: dict[str, tuple[int, Callable[[], Any]]] = {
            "1 thread": (text, lambda: read(ours, threads=1)),
            "2 threads": (text, lambda: read(ours, threads=2)),
            "cache": (stored, lambda: read(ours, cache=cache)),
            sample.peer: (part, lambda: sample.read(theirs)),
        }
        speeds: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(given.repeats):
            for name, (size, task) in readers.items():
                speeds[name].append(size / seconds(task) / 1e6)
    one, two = speeds["1 thread"], speeds["2 threads"]
    return {
        "set": sample.name,
        "identical": identical,
        "megabytes_of_text": text / 1e6,
        "megabytes_of_arrays": stored / 1e6,
        "megabytes_per_second": {name: statistics.median(all_) for name, all_ in speeds.items()},
        "two_over_one": statistics.median(b / a for a, b in zip(one, two, strict=True)),
        "all": speeds,
    }


def table(results: list[dict[str, Any]]) -> str:
    """MB/s by data set and reader."""
    head = ("text", "1 thread", "2 threads", "2 over 1", "cache", "other reader", "identical")
    rows = []
    for result in results:
        *ours, (peer, other) = result["megabytes_per_second"].items()
        one, two, cached = (f"{speed:.0f}" for _, speed in ours)
        cells = [one, two, f"{result['two_over_one']:.2f}", cached, f"{other:.0f} ({peer})"]
        rows.append([result["set"], *cells, str(result["identical"])])
    return report.markdown(head, rows)


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("reading", __doc__)
    add, sets = parser.add_argument, list(SETS)
    add("--data", type=Path, required=True, metavar="DIR", help="directory of the data sets")
    add("--sets", type=arguments.names(sets), default=sets, help=", ".join(sets))
    add(
        "--megabytes", type=float, default=300.0, help="approximate size of the text (default: 300)"
    )
    add("--repeats", type=int, default=5, help="repetitions of each reader (default: 5)")
    add("--scratch", type=Path, metavar="DIR", help="directory for the text (default: temporary)")
    arguments.add_json(parser)
    given = parser.parse_args()
    results = []
    for name in given.sets:
        results.append(measure(SETS[name], given))
        print(results[-1], flush=True)
    print(table(results))
    report.write(given.json, results, megabytes=given.megabytes, repeats=given.repeats)


if __name__ == "__main__":
    main()
