"""The memory that a run needs, from its settings, its data and its plan."""

import math

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.coordinator.plan import Plan
from hogbatch.data.facts import DataFacts
from hogbatch.data.load import LoadedData
from hogbatch.model.footprint import EVALUATION_ROWS, Parts, RunSizes, whole_run
from hogbatch.model.network import Network
from hogbatch.policy.limits import largest_cpu_batch
from hogbatch.run.large import MappedData
from hogbatch.run.planning import (
    has_label_vectors,
    has_nearest_rows,
    mostly_dense,
    stored_of_rows,
)
from hogbatch.store import dataset
from hogbatch.store.layout import arrange


def memory_for(
    config: TrainConfig,
    data: DataFacts,
    network: Network,
    plan: Plan,
    workers: tuple[WorkerRequest, ...],
) -> Parts:
    """Return the memory that a run with these `workers` needs in addition to `data`."""
    train, members = data.train_sizes, 1
    if not network.output_major and (config.cpu_teams or mostly_dense(data, network)):
        members = max((worker.threads for worker in workers), default=1)  # if all are in one team
    largest = plan.limits.cpu[1] if plan.limits.cpu else largest_cpu_batch(train.rows, members)
    batch = max(EVALUATION_ROWS, largest)
    divided = not isinstance(data, LoadedData)  # their rows and row orders are on other servers
    mapped = isinstance(data, MappedData)
    described, near = 0, 0
    if has_label_vectors(config, data):
        described = min(network.outputs, train.listed or train.rows)
    if has_nearest_rows(config, data):
        near = stored_of_rows(train) + train.listed + 3 * train.rows
    sizes = RunSizes(
        network,
        OPTIMIZERS[config.optimizer].slots,
        0 if divided or mapped else arrange(dataset.fields(data.set_sizes)).size,
        0 if divided else train.rows,
        train.sparse,
        batch,
        train.stored_in(batch),
        train.listed_in(batch),
        plan.training.lsh,
        max(plan.validation_rows, plan.test_rows) if plan.keeps_scores else 0,
        described,
        near,
    )
    checkpoints = not math.isinf(plan.checkpoint_seconds)
    return whole_run(sizes, workers, checkpoints=checkpoints, average=plan.stopping.average)
