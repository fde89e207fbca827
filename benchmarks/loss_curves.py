"""Draws test loss against training seconds from what `time_to_loss --json` wrote.

scripts/bench loss_curves results/time_to_loss.json out.svg
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OURS = "hogbatch"
COLOURS = {
    OURS: "#d62728",
    "pytorch": "#1f77b4",
    "pytorch-hogwild": "#17becf",
    "tensorflow": "#ff7f0e",
    "sklearn-mlp": "#2ca02c",
    "sklearn-sgd": "#9467bd",
    "vowpal-wabbit": "#8c564b",
}
PANEL_INCHES = (3.4, 2.8)
COLUMNS = 3
HEADROOM = 0.25  # of the way from the target up to the untrained loss


def median_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The run whose seconds are the median; of two the slower, one that never arrived is last."""
    seconds = [math.inf if run["seconds"] is None else run["seconds"] for run in runs]
    order = sorted(range(len(runs)), key=seconds.__getitem__)
    return runs[order[len(runs) // 2]]


def by_name(runs: Sequence[dict[str, Any]], which: str) -> dict[str, dict[str, Any]]:
    """The median run of each name on the set `which`."""
    names = dict.fromkeys(run["name"] for run in runs if run["set"] == which)
    return {
        name: median_run([run for run in runs if (run["set"], run["name"]) == (which, name)])
        for name in names
    }


def draw(results: dict[str, Any], path: Path) -> None:
    """One panel a set, the median seed's curves, into an .svg or .png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "hogbatch"  # the same results give the same file
    targets = results["about"]["targets"]
    columns = min(COLUMNS, len(targets))
    rows = -(-len(targets) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    panels = axes.flatten()
    for panel, (which, target) in zip(panels, targets.items(), strict=False):
        _panel(panel, by_name(results["runs"], which), which, target)
    for panel in panels[len(targets) :]:
        panel.axis("off")
    _legend(figure, panels, len(targets))
    figure.tight_layout(rect=(0, 0, 1, 1) if len(targets) < len(panels) else (0, 0.07, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _panel(panel: Any, runs: dict[str, dict[str, Any]], which: str, target: float) -> None:
    """Seconds on a logarithmic scale, for they differ by orders of magnitude."""
    for name, run in runs.items():
        curve = [point for point in run["curve"] if point[0] > 0]
        width = 2.4 if name == OURS else 1.2
        seconds, losses = zip(*curve, strict=True) if curve else ((), ())
        panel.plot(
            seconds,
            losses,
            label=name,
            color=COLOURS[name],
            linewidth=width,
            marker="o",
            markersize=1.5 * width,
            markevery=[-1] if curve else [],
        )
    untrained = max(run["curve"][0][1] for run in runs.values())
    lowest = min([target, *(loss for run in runs.values() for _, loss in run["curve"])])
    span = untrained - target
    panel.set_ylim(lowest - 0.03 * span, target + HEADROOM * span)
    panel.axhline(target, color="black", linewidth=0.8, linestyle=":")
    panel.set_xscale("log")
    panel.set_title(f"{which}, to {target:g}", fontsize=10)
    panel.set_xlabel("training seconds", fontsize=8)
    panel.set_ylabel("test loss", fontsize=8)
    panel.tick_params(labelsize=7)


def _legend(figure: Any, panels: Any, used: int) -> None:
    """All names once: in the free panel if there is one, else below."""
    found = [panel.get_legend_handles_labels() for panel in panels[:used]]
    entries = {
        name: line for lines, names in found for line, name in zip(lines, names, strict=True)
    }
    if used < len(panels):
        panels[used].legend(entries.values(), entries.keys(), loc="center", frameon=False)
    else:
        figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=4, frameon=False)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
