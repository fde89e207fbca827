"""The paper's four figures for each set and server, as one .svg with four panels.

The loss is normalised as best / loss, where `best` is the lowest test loss of all methods there:
1.0 is the best, an untrained model is near 0. Curves are those of the median seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.figures import saved_figure
from benchmarks.rehearsals.compare import at_place, best_of, median_result, places
from benchmarks.rehearsals.methods import TOGETHER, batch_of
from benchmarks.rehearsals.sets import SETS

Json = dict[str, Any]
SHADES = {"cpu": "#1f77b4", "gpu": "#2ca02c"}
DASHES = {"adaptive": "-", "hogbatch": ":"}
SIZE_INCHES = (7.6, 5.8)


def draw_all(results: Sequence[Json], directory: Path) -> list[Path]:
    """Draw SET--SERVER.svg for each place (set and server) with a result; return the files."""
    drawn = []
    for place in places(results):
        chosen = curves(at_place(results, place))
        if chosen:
            drawn.append(directory / f"{'--'.join(place)}.svg")
            draw(chosen, place, drawn[-1])
    return drawn


def curves(results: Sequence[Json]) -> dict[str, Json]:
    """The runs to draw, by legend: the CPU by default, the best fixed batches, both policies."""
    runs = {"cpu": median_result(results, "cpu")}
    fixed = [result for result in results if batch_of(result["method"])]
    for kind in ("cpu", "hogwild", "gpu", "gpus"):
        best = best_of(fixed, [kind], "late")
        runs[f"{kind} fixed"] = median_result(results, best.method) if best else None
    runs |= {name: median_result(results, name) for name in TOGETHER}
    return {name: run for name, run in runs.items() if run}


def draw(chosen: dict[str, Json], place: tuple[str, str], path: Path) -> None:
    """Draw the runs of one place."""
    targets = SETS[place[0]].targets.values()
    with saved_figure(path, 2, 2, SIZE_INCHES) as (figure, axes):
        for panel, axis in zip(axes[0], ("seconds", "epochs"), strict=True):
            _losses(panel, chosen, axis, list(targets))
        together = {name: run for name, run in chosen.items() if all(run["devices"].values())}
        _utilization(axes[1][0], together or chosen)
        _updates(axes[1][1], chosen)
        for panel in axes.flatten():
            panel.tick_params(labelsize=7)
        figure.suptitle(f"{place[0]} on {place[1]}, rehearsed", fontsize=10)
        figure.legend(
            *axes[0][0].get_legend_handles_labels(), loc="lower center", ncols=5, fontsize=8
        )
        figure.tight_layout(rect=(0, 0.06, 1, 1))


def normalised(run: Json, best: float, axis: str) -> list[tuple[float, float]]:
    """[(seconds or epochs, best / loss), ...] of the points that a logarithmic axis can show."""
    return [
        (point[axis], best / point["test_loss"])
        for point in run["history"]
        if point["test_loss"] and point[axis] > 0
    ]


def _losses(panel: Any, chosen: dict[str, Json], axis: str, targets: Sequence[float]) -> None:
    """Normalised losses, with a dotted line at each target."""
    from matplotlib import ticker

    losses = [point["test_loss"] for run in chosen.values() for point in run["history"]]
    best = min((loss for loss in losses if loss), default=1.0)
    for name, run in chosen.items():
        points = normalised(run, best, axis)
        at, heights = zip(*points, strict=True) if points else ((), ())
        label = f"{name} ({run['method'].partition('-')[2]})" if "fixed" in name else name
        panel.plot(at, heights, label=label, linewidth=1.3, marker=".")
    for target in targets:
        panel.axhline(best / target, color="black", linewidth=0.7, linestyle=":")
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(ticker.NullFormatter())
    shown = "simulated training seconds" if axis == "seconds" else axis
    panel.set_xlabel(shown, fontsize=8)
    panel.set_ylabel("normalised test loss (best / loss)", fontsize=8)


def _utilization(panel: Any, chosen: dict[str, Json]) -> None:
    """Utilization of each device over time."""
    for name, run in chosen.items():
        for device, series in run["utilization"].items():
            if series:
                at, heights = zip(*series, strict=True)
                style = DASHES.get(name, "--")
                label = f"{device.upper()}, {name}"
                panel.plot(at, heights, style, color=SHADES[device], linewidth=1.2, label=label)
    panel.set_ylim(0, 1.25)
    panel.set_xlabel("simulated training seconds", fontsize=8)
    panel.set_ylabel("utilization", fontsize=8)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=6, frameon=False, loc="upper center", ncols=2)


def _updates(panel: Any, chosen: dict[str, Json]) -> None:
    """Each device's share of the updates."""
    bottom = [0.0] * len(chosen)
    for device, shade in SHADES.items():
        shares = [(run["devices"][device] or {"share": 0.0})["share"] for run in chosen.values()]
        names = [name.replace(" ", "\n").replace("-", "-\n") for name in chosen]
        bars = panel.bar(names, shares, bottom=bottom, color=shade, label=device.upper())
        labels = [f"{share:.2f}" if share else "" for share in shares]
        panel.bar_label(bars, labels, label_type="center", fontsize=7)
        bottom = [below + share for below, share in zip(bottom, shares, strict=True)]
    panel.set_ylim(0, 1.2)
    panel.set_ylabel("share of the updates", fontsize=8)
    panel.legend(fontsize=6, frameon=False, loc="upper center", ncols=2)
