"""Runs on few rows: without worker processes, and with several models by default."""

from typing import Final

from hogbatch.config.train import TrainConfig
from hogbatch.coordinator.plan import Plan
from hogbatch.data.load import LoadedData
from hogbatch.data.order import FEW_ROWS
from hogbatch.data.sizes import SetSizes
from hogbatch.model.network import Network

# One thread does as many in about the time in which a worker process starts; see docs/python.md.
SMALL_RUN: Final = 6e10  # multiplications
# On one thread, a member of an ensemble may take longer: the other threads train other members.
SMALL_MEMBER: Final = 3e11
# The same for linear models of FEW_ROWS or more sparse rows; docs/quality.md has the times.
LINEAR_MEMBER: Final = 1e8
ENSEMBLE: Final = 5  # members by default: each of few rows is held out by one, with a fifth of them
ENSEMBLE_ROWS: Final = 100  # training and validation rows from which on they are the default
TRAINING_PASSES: Final = 3  # over the weights: outputs, gradients of the inputs, of the weights


def is_small(
    config: TrainConfig, plan: Plan, network: Network, train: SetSizes, most: float = SMALL_RUN
) -> bool:
    """Whether a run needs no worker process: one thread trains about as fast as one starts.

    That is with at most `most` multiplications. False if workers or teams are chosen or workers may
    attach, if the number of epochs is not limited, if a mean of models is kept, or if the output
    layer is hashed.
    """
    epochs = plan.stopping.epochs
    processes = (
        config.workers != "auto" and not config.deterministic,
        config.start_with > 1 or config.cpu_teams is not None,
        plan.stopping.average or plan.training.lsh is not None,
    )
    if epochs is None or any(processes):
        return False
    first, *above = network.layers
    row = sum(layer.fan_in * layer.width for layer in above)
    if network.backbone is not None:
        row += network.backbone.products + (first.fan_in - network.features) * first.width
    return TRAINING_PASSES * epochs * (train.values * first.width + train.rows * row) <= most


def default_members(config: TrainConfig, data: LoadedData, plan: Plan, network: Network) -> int:
    """The number of models of a run without `--members`.

    ENSEMBLE if the members can be trained side by side in a short time and hold out different rows;
    docs/quality.md has the measurements. One if another setting needs a single model, limits the
    run, or keeps the last model instead of the best.
    """
    given = (config.init, config.resume, config.max_seconds, config.max_rows, config.target_loss)
    single = any(each is not None for each in given) or config.refit or config.hidden == ()
    single = single or config.label_vectors.count(":") == 2
    if single or config.keep != "best" or not data.validation_drawn:
        return 1
    rows = data.train.rows + data.sets["validation"].rows
    if rows < ENSEMBLE_ROWS or (rows >= FEW_ROWS and not network.linear):
        return 1
    most = SMALL_MEMBER if rows < FEW_ROWS else LINEAR_MEMBER
    return ENSEMBLE if is_small(config, plan, network, data.train_sizes, most) else 1
