"""Settings of training on several servers."""

from dataclasses import dataclass
from typing import Final, Literal

LEASE_S: Final = 0.1  # of a server; it has two at a time
MERGES_PER_EPOCH: Final = 500  # at most, unless --merge-rows is given
SHARE: Final = 0.3  # largest fraction of the time in which a merge is under way


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The settings for merging the models of several servers."""

    rows: int  # of all servers between two merges, at least
    parameters: int  # of the model
    rule: Literal["adasum", "sum", "average"] = "adasum"  # see hogbatch.cluster.decisions.merging
    share: float = SHARE
    load: float = 0.04  # largest fraction of the threads of a server that merges take ...
    load_if_rare: float = 0.1  # ... and if there are more than 3 times `rows` between two merges


def merge_settings(
    train_rows: int,
    parameters: int,
    merge_rows: int | None = None,
    rule: str = "adasum",
    share: float = SHARE,
) -> MergeSettings:
    """The settings of a run on several servers; those without a value are the usual ones."""
    return MergeSettings(
        merge_rows or max(1, train_rows // MERGES_PER_EPOCH),
        parameters,
        rule,  # type: ignore[arg-type]  # one of its choices
        share=share,
    )
