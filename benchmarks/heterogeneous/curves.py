"""Draws the results of `heterogeneous --json` in the form of the paper's figures, one per data set.

    scripts/bench heterogeneous.curves results/heterogeneous.json figures

The loss is normalised as best / loss, where `best` is the lowest test loss of all runs on the data
set: 1.0 is the best, an untrained model is near 0. Curves and bars are those of the median seed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments
from benchmarks.common.figures import saved_figure
from benchmarks.common.report import Run, median_runs

COLOURS = {
    "cpu": "#1f77b4",
    "gpu": "#2ca02c",
    "hogbatch": "#ff7f0e",
    "adaptive": "#d62728",
    "pytorch": "#7f7f7f",
}
SIZE_INCHES = (7.2, 5.6)
BAR = 0.38  # width of a bar; two of them stand at each place


def best_loss(runs: Sequence[Run]) -> float | None:
    """The lowest finite test loss in any history; None without one."""
    losses = [point["test_loss"] for run in runs for point in run["history"]]
    return min((loss for loss in losses if loss is not None), default=None)


def normalised(history: Sequence[dict[str, Any]], best: float, axis: str) -> list[list[float]]:
    """[[seconds or epochs, best / loss], ...] of the points that a logarithmic axis can show.

    Losses are above 0 (a mean of log losses over rows); points without a finite loss are left out.
    """
    return [
        [point[axis], best / point["test_loss"]]
        for point in history
        if point["test_loss"] is not None and point[axis] > 0
    ]


def draw(runs: Sequence[Run], which: str, target: float, path: Path) -> None:
    """Draw the runs on one data set into an .svg or .png."""
    best, chosen = best_loss(runs), median_runs(runs, which)
    with saved_figure(path, 2, 2, SIZE_INCHES) as (figure, axes):
        for panel, axis in zip(axes[0], ("seconds", "epochs"), strict=True):
            if best is not None:
                _losses(panel, chosen, best, axis)
                panel.axhline(best / target, color="black", linewidth=0.8, linestyle=":")
        with_devices = {name: run for name, run in chosen.items() if any(run["devices"].values())}
        _fractions(axes[1][0], with_devices)
        _busy(axes[1][1], with_devices)
        for panel in axes.flatten():
            panel.tick_params(labelsize=7)
        figure.suptitle(f"{which}, to a test loss of {target:g}", fontsize=10)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=5)
        figure.tight_layout(rect=(0, 0.06, 1, 1))


def _losses(panel: Any, chosen: dict[str, Run], best: float, axis: str) -> None:
    """Normalised losses; the axis is logarithmic because the devices' speeds differ so much."""
    from matplotlib import ticker

    for name, run in chosen.items():
        points = normalised(run["history"], best, axis)
        at, heights = zip(*points, strict=True) if points else ((), ())
        panel.plot(at, heights, label=name, color=COLOURS[name], linewidth=1.4, marker=".")
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(ticker.NullFormatter())
    panel.set_xlabel("training seconds" if axis == "seconds" else axis, fontsize=8)
    panel.set_ylabel("normalised test loss (best / loss)", fontsize=8)


def _fractions(panel: Any, chosen: dict[str, Run]) -> None:
    """The fraction of the updates that the CPU made."""
    heights = [(run["devices"]["cpu"] or {"share": 0.0})["share"] for run in chosen.values()]
    bars = panel.bar(list(chosen), heights, color=[COLOURS[name] for name in chosen])
    panel.bar_label(bars, fmt="%.2f", fontsize=7)
    panel.set_ylim(0, 1.1)
    panel.set_ylabel("CPU's fraction of the updates", fontsize=8)


def _busy(panel: Any, chosen: dict[str, Run]) -> None:
    """Seconds of computing over seconds attached."""
    for side, (device, shade) in enumerate((("cpu", "#9ecae1"), ("gpu", "#74c476"))):
        heights = [(run["devices"][device] or {"busy": 0.0})["busy"] for run in chosen.values()]
        places = [number + (side - 0.5) * BAR for number in range(len(chosen))]
        bars = panel.bar(places, heights, BAR, color=shade, label=device.upper())
        panel.bar_label(bars, fmt="%.2f", fontsize=7)
    panel.set_xticks(range(len(chosen)), list(chosen))
    panel.set_ylim(0, 1.25)
    panel.set_ylabel("fraction of the time spent computing", fontsize=8)
    panel.legend(fontsize=7, frameon=False, loc="upper center", ncols=2)


def main() -> None:
    """Read the results and draw one figure per data set."""
    parser = arguments.parser("heterogeneous.curves", __doc__)
    parser.add_argument("results", type=Path, help="JSON file of heterogeneous")
    parser.add_argument("directory", type=Path, help="output directory for SET.svg")
    given = parser.parse_args()
    results = json.loads(given.results.read_text(encoding="utf-8"))
    for which, target in results["about"]["targets"].items():
        runs = [run for run in results["results"] if run["set"] == which]
        if runs:
            draw(runs, which, target, given.directory / f"{which}.svg")


if __name__ == "__main__":
    main()
