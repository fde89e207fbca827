"""The report: what each stage did, the targets, and every failure."""

from collections.abc import Mapping
from typing import Any

from benchmarks.common.report import markdown
from benchmarks.gpu_acceptance.budget import SHARES
from benchmarks.gpu_acceptance.record import clipped
from benchmarks.gpu_acceptance.targets import MISSED, target_results

Json = dict[str, Any]
FINISHED = "finished"
MOST_FAILURES = 40


def failed(records: Mapping[str, Json]) -> bool:
    """Whether a measurement failed, a stage did not finish, or a target was not reached."""
    ends = [(record["ended"] or {}).get("how") for record in records.values()]
    return (
        any(errors(record) for record in records.values())
        or any(how != FINISHED for how in ends)
        or any(result.state == MISSED for result in target_results(records))
    )


def errors(record: Json) -> list[Json]:
    """The measurements that failed."""
    return [each for each in record["measurements"] if "error" in each]


def text(records: Mapping[str, Json]) -> str:
    """The report in Markdown."""
    parts = ["# Acceptance on a GPU", about(records), stages(records), targets(records)]
    return "\n\n".join(filter(None, [*parts, failures(records)])) + "\n"


def about(records: Mapping[str, Json]) -> str:
    """Date, hardware and versions of the first record that has them."""
    facts = next((r["about"] for r in records.values() if r["about"]), None)
    if facts is None:
        return ""
    device = next(
        (
            m["value"]["name"]
            for m in records.get("preflight", {}).get("measurements", [])
            if m["name"] == "device" and "value" in m
        ),
        "; ".join(facts["gpus"]) or "GPU unknown",
    )
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['date']}: {device}; {facts['cores']} cores of {facts['cpu']}; {versions}."


def stages(records: Mapping[str, Json]) -> str:
    """One line per stage."""
    rows = []
    for stage in SHARES:
        if (record := records.get(stage)) is None:
            continue
        all_of = record["measurements"]
        counts = [sum(key in each for each in all_of) for key in ("error", "skipped")]
        ended = record["ended"] or {"how": "running", "seconds": 0}
        passed = len(all_of) - sum(counts)
        rows.append([stage, ended["how"], f"{ended['seconds']:.0f}", *map(str, (passed, *counts))])
    return markdown(["stage", "end", "seconds", "passed", "failed", "skipped"], rows)


def targets(records: Mapping[str, Json]) -> str:
    """One line per target."""
    return markdown(["target", "", "detail"], target_results(records))


def failures(records: Mapping[str, Json]) -> str:
    """One line per failed measurement."""
    lines = [
        f"- {stage}: {each['name']}: {clipped(' '.join(str(each['error']).split()), 300)}"
        for stage, record in records.items()
        for each in errors(record)
    ]
    more = [f"- and {len(lines) - MOST_FAILURES} more"] if len(lines) > MOST_FAILURES else []
    return "\n".join(["Failures:", *lines[:MOST_FAILURES], *more]) if lines else "No failures."
