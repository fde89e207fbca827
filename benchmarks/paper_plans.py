"""A hundred servers for the networks of the papers: what `hogbatch plan` predicts.

    scripts/bench paper_plans --json out.json

Nothing is measured here. The time of a merge follows from the number of parameters and the link.
How often servers can merge depends on their rows per second, too. Two kinds of servers:

  two cores   471 GFLOP/s, measured on 300-512x8-2 (docs/performance.md) and assumed for the other
              dense networks; 8,400 rows/s with 670,091 labels, measured with hashed outputs on
              synthetic rows (docs/slide.md) and assumed for the other sets with many labels
  V100        60 % of its peak of 15.7 TFLOP/s, assumed; all outputs are computed

Rows and sizes are those of the papers and their published code. From memory: the numbers of hidden
layers of Ma & Rusu 2020 (their code has 8), WikiLSH, and the stored values of a row of real-sim.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from benchmarks.common import arguments, report
from hogbatch.cluster.estimate import Task, parameters_of, predict
from hogbatch.cluster.link import ServerLink
from hogbatch.cluster.text import duration, percent, size

CORES_FLOPS: Final = 471e9  # per second; see above
GPU_FLOPS: Final = 0.6 * 15.7e12
HASHED_ROWS: Final = 8400.0  # per second
SHARE: Final = 0.1  # of the time, wanted for merges


@dataclass(frozen=True, slots=True)
class PaperNetwork:
    """A network of a paper and its training set."""

    name: str
    paper: str
    sizes: tuple[int, ...]  # inputs, hidden units, outputs
    rows: int
    stored: float | None = None  # values of a sparse row; None: rows are dense
    hashed: bool = False  # the outputs, on CPUs

    @property
    def flops(self) -> float:
        """Floating-point operations of a row.

        Each weight has two in the forward pass, two in its gradient, and, except in the first
        layer, two in that of its input. Of a sparse row, weights of stored values count.
        """
        inputs = self.sizes[0] if self.stored is None else self.stored
        layers = [fan_in * fan_out for fan_in, fan_out in pairwise((inputs, *self.sizes[1:]))]
        return 6 * sum(layers) - 2 * layers[0]

    @property
    def speeds(self) -> dict[str, float]:
        """Rows per second of one server, by its kind."""
        cores = HASHED_ROWS if self.hashed else CORES_FLOPS / self.flops
        return {"two cores": cores, "V100": GPU_FLOPS / self.flops}


MA_RUSU: Final = "Ma & Rusu 2020"
SLIDE: Final = "Adaptive SGD; SLIDE"
NETWORKS: Final = (
    PaperNetwork("covtype", MA_RUSU, (54, *(512,) * 6, 2), 581_012),
    PaperNetwork("w8a", MA_RUSU, (300, *(512,) * 8, 2), 64_700),
    PaperNetwork("delicious", MA_RUSU, (500, *(512,) * 8, 983), 16_105),
    PaperNetwork("real-sim", MA_RUSU, (20_958, *(512,) * 4, 2), 72_309, 51.0),
    PaperNetwork("Amazon-670k", SLIDE, (135_909, 128, 670_091), 490_449, 75.68, True),
    PaperNetwork("Delicious-200k", SLIDE, (782_585, 128, 205_443), 196_606, 301.17, True),
    PaperNetwork(
        "WikiLSH-325k", "Accelerating SLIDE", (1_617_899, 128, 325_056), 1_778_351, 42.0, True
    ),
)


def planned(network: PaperNetwork, kind: str, servers: int, link: ServerLink) -> dict[str, Any]:
    """What is predicted for a network on `servers` servers of one kind."""
    speed = network.speeds[kind]
    task = Task(parameters_of(network.sizes), network.rows, speed, merges_per_epoch=1.0)
    plan = predict(task, link, SHARE, [servers])
    (found,) = plan.servers
    return {
        "network": network.name,
        "paper": network.paper,
        "sizes": network.sizes,
        "rows": network.rows,
        "parameters": task.parameters,
        "server": kind,
        "rows_per_second": speed,
        "servers": servers,
        "reduction": found.merge.cost.name,
        "messages": found.merge.cost.messages,
        "sent_bytes": found.merge.sent,
        "merge_seconds": found.merge.seconds,
        "epoch_seconds": found.epoch,
        "share_with_one_merge_per_epoch": found.share,
        "most_merges_per_epoch": found.most_merges,
        "fewest_rows_between_merges": found.fewest_rows,
        "most_rows_per_second": found.most_rows_per_second,
        "possible": found.possible,
        "most_servers": plan.most_servers,
    }


def table(results: Iterable[dict[str, Any]]) -> str:
    """One row for each network and kind of server."""
    head = [
        *("network", "rows", "model", "merge", "server", "rows/s", "epoch"),
        *("one merge per epoch", "merges per epoch for 10 %", "rows between merges"),
        *("servers for 10 %", "rows/s for 10 %"),
    ]
    rows = [
        [
            each["network"],
            f"{each['rows']:,}",
            size(4 * each["parameters"]),
            duration(each["merge_seconds"]),
            each["server"],
            rounded(each["rows_per_second"]),
            duration(each["epoch_seconds"]),
            percent(each["share_with_one_merge_per_epoch"]),
            f"{each['most_merges_per_epoch']:.2g}",
            rounded(each["fewest_rows_between_merges"]),
            f"{each['most_servers']}",
            rounded(each["most_rows_per_second"]),
        ]
        for each in results
    ]
    return report.markdown(head, rows)


def rounded(number: float) -> str:
    """Three digits, as in 12,300."""
    return f"{float(f'{number:.3g}'):,.0f}"


def main() -> None:
    """Predict and print."""
    parser = arguments.parser("paper_plans", __doc__)
    add, positive = parser.add_argument, arguments.positive
    add("--servers", type=positive(int), default=100, help="number of servers (default: 100)")
    add("--gbit", type=positive(float), default=10.0, help="Gbit/s of the link (default: 10)")
    add("--latency-us", type=positive(float), default=50.0, help="its latency (default: 50)")
    arguments.add_json(parser)
    given = parser.parse_args()
    link = ServerLink(1e-6 * given.latency_us, 1e9 / 8 * given.gbit)
    results = [
        planned(network, kind, given.servers, link)
        for network in NETWORKS
        for kind in network.speeds
    ]
    print(table(results))
    report.write(given.json, results, predicted=True, share=SHARE, gbit=given.gbit)


if __name__ == "__main__":
    main()
