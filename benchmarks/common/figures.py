"""Figures of test loss against training seconds, drawn with Matplotlib."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common.report import OURS, Run, median_runs

COLOURS = {
    OURS: "#d62728",
    "pytorch": "#1f77b4",
    "pytorch-hogwild": "#17becf",
    "tensorflow": "#ff7f0e",
    "sklearn-sgd": "#9467bd",
    "vowpal-wabbit": "#8c564b",
}
PANEL_INCHES = (3.4, 2.8)
COLUMNS = 3
HEADROOM = 0.25  # fraction of the distance between the target and the untrained loss


@contextmanager
def saved_figure(
    path: Path, rows: int, columns: int, size: tuple[float, float]
) -> Iterator[tuple[Any, Any]]:
    """(figure, axes[rows][columns]), saved as `path` (.svg or .png) at the end.

    The same results give the same file: SVG identifiers are fixed and the date is left out. Text is
    stored as text, which makes files smaller than outlines do.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "hogbatch", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    yield figure, axes
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def draw_loss_curves(results: dict[str, Any], path: Path) -> None:
    """Draw one panel per data set with the curves of the median seeds into an .svg or .png."""
    targets = results["about"]["targets"]
    columns = min(COLUMNS, len(targets))
    rows = -(-len(targets) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    with saved_figure(path, rows, columns, size) as (figure, axes):
        panels = axes.flatten()
        for panel, (which, target) in zip(panels, targets.items(), strict=False):
            _panel(panel, median_runs(results["runs"], which), which, target)
        for panel in panels[len(targets) :]:
            panel.axis("off")
        _legend(figure, panels, len(targets))
        figure.tight_layout(rect=(0, 0, 1, 1) if len(targets) < len(panels) else (0, 0.07, 1, 1))


def _panel(panel: Any, runs: dict[str, Run], which: str, target: float) -> None:
    """The curves of one data set; seconds are logarithmic because they differ by magnitudes."""
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
    """One legend for all panels, in the free panel if there is one, else below."""
    found = [panel.get_legend_handles_labels() for panel in panels[:used]]
    entries = {
        name: line for lines, names in found for line, name in zip(lines, names, strict=True)
    }
    if used < len(panels):
        panels[used].legend(entries.values(), entries.keys(), loc="center", frameon=False)
    else:
        figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=4, frameon=False)
