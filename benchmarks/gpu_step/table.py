"""Speeds, fractions of the limits, and the table of `gpu_step`."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_step.hogbatch_steps import VARIANTS

PRODUCTS = "products"
FRACTIONS = ("of_products", "of_square", "over_best_peer")

Result = dict[str, Any]


def summarised(result: Result, square: Mapping[str, float]) -> Result:
    """`result` with speeds and fractions derived from its seconds; `square` are TFLOP/s."""
    size, seconds = result["batch"], result["step_seconds"]
    speeds = {name: size / statistics.median(each) for name, each in seconds.items()}
    best = max(speeds[name] for name, each in VARIANTS.items() if each.recorded and name in speeds)
    peers = [speed for name, speed in speeds.items() if name not in (*VARIANTS, PRODUCTS)]
    tflops = best * result["flops_per_row"] / 1e12
    return result | {
        "rows_per_second": speeds,
        "tflops": tflops,
        "of_products": best / speeds[PRODUCTS],
        "of_square": tflops / max(square.values()),
        "over_best_peer": best / max(peers) if peers else None,
    }


def head(peers: Sequence[str]) -> str:
    """The first two lines of the table."""
    names = ["network", "precision", "optimizer", "rows", "TFLOP/s"]
    names += [fraction.replace("_", " ") for fraction in FRACTIONS]
    names += [*(f"{name}, rows/s" for name in (*VARIANTS, PRODUCTS, *peers)), "losses"]
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


def line(result: Result, peers: Sequence[str]) -> str:
    """The line of `result` in the table."""
    speeds, fractions = result["rows_per_second"], [result[fraction] for fraction in FRACTIONS]
    cells = [result["network"], result["precision"], result["optimizer"], str(result["batch"])]
    cells += [f"{result['tflops']:.3g}"]
    cells += ["-" if fraction is None else f"{fraction:.2f}" for fraction in fractions]
    cells += [
        f"{speeds[name]:.3g}" if name in speeds else "-" for name in (*VARIANTS, PRODUCTS, *peers)
    ]
    return f"| {' | '.join([*cells, disagreement(result)])} |"


def disagreement(result: Result) -> str:
    """The variants whose losses differ, and by how much; "same" if none does."""
    differences = result["differences"]
    named = [
        f"{name} {'?' if differences[name] is None else format(differences[name], '.2g')}"
        for name in result["mismatched"]
    ]
    return ", ".join([*named, *(f"{name} diverged" for name in result["diverged"])]) or "same"
