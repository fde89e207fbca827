"""Stage step: benchmarks.gpu_step in each precision, the most valuable sizes first."""

from typing import Any, Final, NamedTuple

from benchmarks.gpu_acceptance.record import Record
from benchmarks.gpu_acceptance.stage import Stage, follow_results

PRECISIONS: Final = ("float32", "tf32", "bfloat16")
PAPER: Final = "300-512x8-2,54-512x3-7"  # the networks of Ma & Rusu 2020
MARGIN_S: Final = 30.0  # for the start of gpu_step, before its --limit counts, and the last size


class Pass(NamedTuple):
    """The flags of one run of gpu_step in each precision."""

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
    """Each pass in each precision, in a process of its own."""
    for each in QUICK if stage.settings.quick else PASSES:
        for number, precision in enumerate(each.precisions):
            name = f"{each.name}, {precision}"
            if stage.left_s <= 0:
                stage.record.skip(name, "no time left")
            else:
                with stage.failures_recorded(name):
                    limit_s = stage.left_s / (len(each.precisions) - number)
                    measure(stage, each, precision, name, limit_s)


def measure(stage: Stage, each: Pass, precision: str, name: str, limit_s: float) -> None:
    """Record every result as soon as gpu_step has written it."""
    flags = ["--networks", each.networks, "--batches", each.batches, "--peers", each.peers]
    flags += ["--precision", precision, "--limit", f"{max(1.0, limit_s - MARGIN_S):.0f}"]
    arguments = ["benchmarks.gpu_step", *flags, *each.more]
    follow_results(stage, name, arguments, Results(stage.record).add, limit_s)


class Results:
    """Records the results of one call of gpu_step."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._products_recorded = False

    def add(self, result: dict[str, Any], about: dict[str, Any]) -> None:
        """Record a result, the first one after the speed of the large products."""
        if not self._products_recorded:
            self._record.add(f"square product, {result['precision']}", about["square_tflops"])
            self._products_recorded = True
        where = f"{result['network']}, {result['precision']}, {result['batch']} rows"
        wrong = [*result["mismatched"], *(f"{n} diverged" for n in result["diverged"])]
        if wrong:
            self._record.fail(where, f"losses differ: {', '.join(wrong)}", result)
        else:
            self._record.add(where, result)
