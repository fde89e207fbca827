"""Divides the parts of data among servers.

A part is a file. Each is on `copies` servers: if one of them is lost, others take over its rows,
and a slow server leaves rows to those that have the same parts.
"""

from collections.abc import Sequence

from hogbatch.errors import UsageError


def divide(sizes: Sequence[int], servers: int, copies: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of the parts on each server, ascending: [servers].

    The first copies are distributed so that all servers have about the same sum of `sizes`: the
    largest part goes to the server with the least so far. The other copies of the parts of a server
    are spread over all others, so that these share its rows if it is lost or slow. UsageError if
    there are fewer parts than servers.
    """
    assert copies <= servers, "the settings are checked before"
    if len(sizes) < servers:
        raise UsageError(
            f"--servers {servers}: the data have only {len(sizes)} files, and each server reads "
            "whole files; give fewer servers, or split the data into more files"
        )
    groups = _balanced(sizes, servers)
    held = [list(group) for group in groups]
    for server, group in enumerate(groups):
        for index, part in enumerate(group):
            for copy in range(copies - 1):
                distance = 1 + (index * (copies - 1) + copy) % (servers - 1)
                held[(server + distance) % servers].append(part)
    return tuple(tuple(sorted(parts)) for parts in held)


def _balanced(sizes: Sequence[int], servers: int) -> list[list[int]]:
    """Parts in groups with about the same sum of `sizes`, one for each server."""
    groups: list[list[int]] = [[] for _ in range(servers)]
    load = [(0, 0)] * servers  # of each: the sum of sizes, and the number of parts
    for part in sorted(range(len(sizes)), key=lambda part: (-sizes[part], part)):
        least = min(range(servers), key=lambda server: (*load[server], server))
        groups[least].append(part)
        load[least] = load[least][0] + sizes[part], load[least][1] + 1
    return groups
