"""The plan of `hogbatch plan` in words, and as an object for JSON."""

from collections.abc import Iterator
from typing import Any

from hogbatch.cluster.decisions.estimate import EFFICIENCY, MOST_SERVERS, ClusterPlan, ServerPlan


def lines(plan: ClusterPlan) -> Iterator[str]:
    """The lines of a plan."""
    task, link = plan.task, plan.link
    yield (
        f"model: {task.parameters:,} parameters, {size(task.model_bytes)}; "
        f"{task.rows:,} training rows; one server: {task.rows_per_second:,.0f} rows/s"
    )
    yield (
        f"link: {8e-9 * link.speed:g} Gbit/s, {1e6 * link.latency:g} us; "
        f"{task.merges_per_epoch:g} merges per epoch"
    )
    yield "All times below are predicted from these figures."
    yield ""
    wanted = f"rows for {percent(plan.share)}"
    yield (
        f"{'servers':>7}  {'merge every':>11}  {'merge':>8}  {'share':>7}  {'reduction':9}  "
        f"{'messages':>8}  {'sent by one':>11}  {wanted:>14}  {'per epoch':>9}"
    )
    for each in plan.servers:
        cost = each.merge.cost
        yield (
            f"{each.servers:7}  {duration(each.interval):>11}  {duration(each.merge.seconds):>8}  "
            f"{percent(each.share):>7}  {cost.name:9}  {cost.messages:8,}  "
            f"{size(each.merge.sent):>11}  {each.fewest_rows:14,}  {each.most_merges:9.3g}"
        )
    yield ""
    yield from _conclusions(plan)


def _conclusions(plan: ClusterPlan) -> Iterator[str]:
    wanted = percent(plan.share)
    if plan.most_servers > 1:
        yield f"Up to {_servers(plan.most_servers)}, merging takes at most {wanted} of the time."
    else:
        yield f"Merging takes more than {wanted} of the time, even with two servers."
    if plan.most_servers < plan.most_servers_once:
        yield (
            f"With more, they train on the {plan.task.rows_between_merges:,} rows between two "
            f"merges too fast. Up to {_servers(plan.most_servers_once)} can merge less often "
            "(last columns: rows between two merges, and merges per epoch)."
        )
    impossible = [each for each in plan.servers if not each.possible]
    if impossible:
        yield from _why_impossible(plan, impossible[-1])
    waiting = _servers(plan.most_waiting)
    yield (
        f"If training waited for merges, up to {waiting} would have an efficiency of "
        f"{percent(EFFICIENCY)} (lemma 1 of Zou et al.)."
    )
    if plan.servers:
        last = plan.servers[-1]
        yield (
            f"In place of the reduction, {last.parameter_servers:,} parameter servers would hide "
            f"the transfers of {last.servers} servers (lemma 2 of Zou et al.)."
        )


def _why_impossible(plan: ClusterPlan, each: ServerPlan) -> Iterator[str]:
    """Why merging cannot take the wanted share with this number of servers."""
    task, merge, wanted = plan.task, each.merge, percent(plan.share)
    yield (
        f"With {each.servers} servers, merging cannot take at most {wanted} of the time: they "
        f"train on all {task.rows:,} rows in {duration(each.epoch)}, and there is a merge at the "
        "end of each epoch."
    )
    yield (
        f"  A merge takes {duration(merge.seconds)}, {percent(merge.seconds / each.epoch)} of "
        f"that: {duration(merge.sending)} for the {size(merge.sent)} that a server sends, "
        f"{duration(merge.waiting)} for the latency of {merge.cost.steps} steps, "
        f"{duration(merge.adding)} for additions."
    )
    yield (
        f"  {wanted} needs {each.fewest_rows:,} rows between two merges, "
        f"{each.fewest_rows / task.rows:.3g} epochs; or servers of at most "
        f"{each.most_rows_per_second:,.0f} rows/s; or fewer servers."
    )


def fields(plan: ClusterPlan) -> dict[str, Any]:
    """The plan as an object for JSON; times in seconds, sizes in bytes."""
    task, link = plan.task, plan.link
    return {
        "parameters": task.parameters,
        "rows": task.rows,
        "rows_per_second": task.rows_per_second,
        "merges_per_epoch": task.merges_per_epoch,
        "link": {"latency": link.latency, "bytes_per_second": link.speed},
        "wanted_share": plan.share,
        "most_servers": plan.most_servers,
        "most_servers_with_one_merge_per_epoch": plan.most_servers_once,
        "most_servers_if_training_waited": plan.most_waiting,
        "plans": [
            {
                "servers": each.servers,
                "seconds_between_merges": each.interval,
                "merge_seconds": each.merge.seconds,
                "share": each.share,
                "reduction": each.merge.cost.name,
                "steps": each.merge.cost.steps,
                "messages": each.merge.cost.messages,
                "sent_bytes": each.merge.sent,
                "fewest_rows_between_merges": each.fewest_rows,
                "most_merges_per_epoch": each.most_merges,
                "most_rows_per_second_of_one_server": each.most_rows_per_second,
                "possible": each.possible,
                "parameter_servers": each.parameter_servers,
            }
            for each in plan.servers
        ],
    }


def _servers(count: int) -> str:
    if count >= MOST_SERVERS:
        return f"{MOST_SERVERS} servers or more"
    return "one server" if count == 1 else f"{count} servers"


def percent(fraction: float) -> str:
    """A fraction in percent."""
    return f"{100 * fraction:,.3g} %" if fraction < 10 else f"{100 * fraction:,.0f} %"


def duration(seconds: float) -> str:
    """Seconds with a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def size(nbytes: float) -> str:
    """Bytes with a suitable unit."""
    for unit, factor in (("GB", 1e-9), ("MB", 1e-6), ("kB", 1e-3)):
        if nbytes * factor >= 1.0:
            return f"{nbytes * factor:.3g} {unit}"
    return f"{nbytes:.0f} B"
