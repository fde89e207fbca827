"""Stage step: benchmarks.gpu_step, the most valuable sizes first."""

from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage, follow_results

PRECISIONS: Final = ("float32", "tf32", "bfloat16")
PAPER: Final = "300-512x8-2,54-512x3-7"  # the networks of Ma & Rusu 2020
MARGIN_S: Final = 12.0  # for the start of gpu_step, before its --limit counts, and the last size


class Pass(NamedTuple):
    """The flags of one run of gpu_step."""

    name: str
    networks: str
    batches: str
    peers: str
    more: tuple[str, ...] = ()
    precisions: tuple[str, ...] = PRECISIONS


PASSES: Final = (
    Pass("graph", PAPER, "256,8192", "graph"),
    Pass("other sizes", PAPER, "64,1024,4096,16384,32768", "graph"),
    Pass("sparse", "300:12-512x8-2,50000:100-512-2", "256,8192", "graph"),
    Pass("layers", "pictures,sequences", "256,2048", "graph", precisions=("float32", "tf32")),
    Pass("eager", PAPER, "256,8192", "eager"),
    Pass("compiled", PAPER, "256,8192", "compiled"),
)
QUICK: Final = (
    Pass(
        *("graph", "54-512x3-7", "16", "graph"),
        ("--side", "64", "--rows", "64", "--seconds", "0.001", "--repetitions", "1"),
        ("tf32",),
    ),
)


def run(stage: Stage) -> None:
    """Each pass in a process of its own."""
    for each in QUICK if stage.settings.quick else PASSES:
        stage.attempt(each.name, partial(measure, stage, each), MARGIN_S)


def measure(stage: Stage, each: Pass) -> None:
    """Record every result as soon as gpu_step has written it."""
    flags = ["--networks", each.networks, "--batches", each.batches, "--peers", each.peers]
    flags += ["--precision", ",".join(each.precisions)]
    flags += ["--limit", f"{stage.left_s - MARGIN_S:.0f}"]
    arguments = ["benchmarks.gpu_step", *flags, *each.more]
    follow_results(stage, each.name, arguments, Results(stage.record).add, stage.left_s)


class Results:
    """Records the results of one call of gpu_step."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._products_recorded = set[str]()  # in these precisions

    def add(self, result: dict[str, Any], about: dict[str, Any]) -> None:
        """Record a result, the first one of a precision after the speed of its large products."""
        precision = result["precision"]
        if precision not in self._products_recorded:
            speeds = about["square_tflops"][precision]
            self._record.add(f"square product, {precision}", speeds)
            self._products_recorded.add(precision)
        where = f"{result['network']}, {result['precision']}, {result['batch']} rows"
        wrong = [*result["mismatched"], *(f"{n} diverged" for n in result["diverged"])]
        if wrong:
            self._record.fail(where, f"losses differ: {', '.join(wrong)}", result)
        else:
            self._record.add(where, result)
