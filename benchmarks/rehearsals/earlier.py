"""A table of two matrices: the seconds of adaptive over the better device alone, then and now."""

from collections.abc import Sequence
from typing import Any

from benchmarks.common.report import markdown

Json = dict[str, Any]


def then_and_now(earlier: Sequence[Json], entries: Sequence[Json]) -> str:
    """One row for each set and target, and one column for each server with such ratios.

    Both arguments are the entries of a matrix.json. "-" is a ratio that is not known.
    """
    then, now = ({_key(e): _ratio(e) for e in each} for each in (earlier, entries))
    servers = sorted({server for _, _, server in now})
    rows = []
    for name, shown in {_key(e)[:2]: f"{e['set']}, {e['shown']}" for e in entries}.items():
        keys = [(*name, server) for server in servers]
        rows.append([shown, *(_cell(then.get(key, "-"), now.get(key, "-")) for key in keys)])
    return markdown(("set, target", *servers), rows)


def _key(entry: Json) -> tuple[str, str, str]:
    return entry["set"], entry["target"], entry["server"]


def _ratio(entry: Json) -> str:
    found = entry["factors"].get("adaptive")
    if not found or found["value"] is None:
        return "-"
    return f"{'' if found['bound'] == '=' else found['bound'] + ' '}{found['value']:.2f}"


def _cell(then: str, now: str) -> str:
    return "" if then == now == "-" else f"{then} → **{now}**"
