"""How fast is text read, on one thread, on two, and from the cache, beside scikit-learn and NumPy?

Every set is written out as plain text and repeated to a few hundred MB, read once (which also
compiles the parser), and then by each reader in turn. What hogbatch reads must be what the others
read, to the bit. Speeds are in MB/s of text, but from the cache, where text is of no account, of
the arrays that come of it; it lies in the page cache there, as it does after the first run.

    scripts/bench reading --data DIR --json out.json

DIR holds imdb-train.svm.gz, delicious-train.xmc.gz, covtype.csv.gz. Other readers read the first
part of a file only, as they take long, and the XMC text without its header.
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

import about
import numpy as np
from sklearn.datasets import load_svmlight_file

from hogbatch.data.cache import DataCache
from hogbatch.data.raw import RawSet
from hogbatch.data.readers import read


class Sample(NamedTuple):
    """A set, and a reader to hold against."""

    name: str
    header: int  # lines
    peer: str
    read: Callable[[Path], tuple[list[Any], Any]]  # arrays of the inputs; labels


def libsvm(path: Path) -> tuple[list[Any], Any]:
    """What scikit-learn reads."""
    inputs, labels = load_svmlight_file(str(path), dtype=np.float32)
    return [inputs.indptr, inputs.indices, inputs.data], labels


def xmc(path: Path) -> tuple[list[Any], Any]:
    """What scikit-learn reads; it has no XMC, but lists of labels."""
    inputs, lists = load_svmlight_file(
        str(path), dtype=np.float32, multilabel=True, zero_based=True
    )
    return [inputs.indptr, inputs.indices, inputs.data], np.concatenate(lists)


def csv(path: Path) -> tuple[list[Any], Any]:
    """What NumPy reads; the label is the last column."""
    numbers = np.loadtxt(path, delimiter=",", ndmin=2)
    return [numbers[:, :-1].astype(np.float32)], numbers[:, -1]


SETS = {
    "libsvm": Sample("imdb-train.svm", 0, "scikit-learn", libsvm),
    "xmc": Sample("delicious-train.xmc", 1, "scikit-learn", xmc),
    "csv": Sample("covtype.csv", 1, "numpy.loadtxt", csv),
}


def write(sample: Sample, folder: Path, data: Path, megabytes: float) -> tuple[Path, Path]:
    """Write the set for hogbatch, repeated to so much, and a part without a header for its peer."""
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
    """The size of all that was read."""
    arrays = [*raw.inputs, *(raw.label_lists or ()), raw.labels, raw.lines]
    return sum(array.nbytes for array in arrays if array is not None)


def keep(path: Path, cache: DataCache) -> int:
    """Put a file into the cache; returns how many bytes of arrays it has there."""
    os.utime(path, (0, 0))  # what has just been written is not kept
    read(path, cache=cache)
    if not list(cache.directory.glob("*")):
        raise SystemExit(f"{path} was not kept: is the disk nearly full?")
    return array_bytes(read(path, cache=cache))


def seconds(task: Callable[[], Any]) -> float:
    """How long it takes; what it returns is freed outside the time."""
    gc.collect()
    start = time.perf_counter()
    result = task()
    taken = time.perf_counter() - start
    del result
    return taken


def same(sample: Sample, ours: RawSet, theirs: tuple[list[Any], Any]) -> bool:
    """Whether the first rows of ours are the rows of theirs, to the bit."""
    inputs, labels = theirs
    rows = len(inputs[0]) - (len(inputs) == 3)
    if sample.read is csv:
        assert ours.labels is not None
        pairs = [(ours.inputs.dense[:rows], inputs[0]), (ours.labels[:rows], labels)]
    else:
        values = int(ours.inputs.indptr[rows])
        mine = ours.labels[:rows] if ours.labels is not None else np.empty(0)
        if ours.label_lists is not None:
            mine = ours.label_lists.indices[: int(ours.label_lists.indptr[rows])]
        pairs = [
            (ours.inputs.indptr[: rows + 1], inputs[0]),
            (ours.inputs.indices[:values], inputs[1]),
            (ours.inputs.values[:values].view(np.uint32), inputs[2].view(np.uint32)),
            (mine, labels),
        ]
    return all(np.array_equal(one, other) for one, other in pairs)


def measure(sample: Sample, arguments: argparse.Namespace) -> dict[str, Any]:
    """Megabytes a second of every reader, the median of some repetitions in turn."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        ours, theirs = write(sample, Path(folder), arguments.data, arguments.megabytes)
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
        for _ in range(arguments.repeats):
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
    """MB/s by set and reader."""
    columns = ("text", "1 thread", "2 threads", "2 over 1", "cache", "the other", "identical")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for result in results:
        *ours, (peer, other) = result["megabytes_per_second"].items()
        one, two, cached = (speed for _, speed in ours)
        cells = f"{one:.0f} | {two:.0f} | {result['two_over_one']:.2f} | {cached:.0f}"
        lines.append(
            f"| {result['set']} | {cells} | {other:.0f} ({peer}) | {result['identical']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated (default: all)")
    parser.add_argument("--megabytes", type=float, default=300.0, help="of text, about")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where the text is written")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    arguments = parser.parse_args()
    results = []
    for name in arguments.sets.split(","):
        results.append(measure(SETS[name], arguments))
        print(results[-1], flush=True)
    print(table(results))
    settings = {name: getattr(arguments, name) for name in ("megabytes", "repeats")}
    about.write(arguments.json, results, **settings)


if __name__ == "__main__":
    main()
