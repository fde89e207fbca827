"""The network and the plan of a run, derived from its settings and its data."""

import math
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from hogbatch.config.augmentation import parse as parse_augmentation
from hogbatch.config.backbone import Backbone, divided
from hogbatch.config.effect import changed
from hogbatch.config.flags import dashed
from hogbatch.config.losses import LOSSES, choose_loss
from hogbatch.config.lsh import MANY, REHASH, REHASH_OF_SERVERS, Lsh, parse
from hogbatch.config.metrics import MAX_SCORES, NUMBERS, fitting, keeps_all_scores
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sets import SetName
from hogbatch.config.train import TrainConfig
from hogbatch.config.values import BatchLimits
from hogbatch.coordinator.plan import Identity, Limits, Plan, StoppingCriteria
from hogbatch.data.facts import DataFacts
from hogbatch.data.sizes import SetSizes
from hogbatch.errors import UsageError
from hogbatch.model.label_vectors import STORED, VALUES
from hogbatch.model.network import Network
from hogbatch.policy.base import PolicySettings
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.policy.limits import SMALL_CPU_BATCH, largest_cpu_batch, largest_gpu_batch
from hogbatch.policy.throughput import FORWARD_FRACTION
from hogbatch.run import defaults as recommend
from hogbatch.version import version
from hogbatch.wire.messages import Optimizer, Welcome
from hogbatch.workers.compute.teams import gains_from_teams


def network_for(config: TrainConfig, data: DataFacts) -> Network:
    """Return the network.

    Its output layer is output-major if it is hashed, or has many outputs of which each row has few.
    """
    features, outputs = data.train_sizes.features, data.encoding.outputs
    backbone, hidden = _backbone(config, data)
    hashed = _hashes(config, data)
    if hashed and _choices(data) == 1:
        raise UsageError("output lsh needs several classes or labels; these data have none")
    if hashed and not hidden:
        raise UsageError("output lsh needs a hidden layer, whose activations are hashed; got none")
    loss = choose_loss(config.loss, data.encoding.kind, hashed=hashed)
    output_major = hashed or (_choices(data) >= MANY and len(hidden) > 0)
    return Network.build(
        features,
        hidden,
        outputs,
        config.activation,
        loss.name,
        output_major=output_major,
        backbone=backbone,
    )


def _backbone(config: TrainConfig, data: DataFacts) -> tuple[Backbone | None, tuple[int, ...]]:
    """Return the layers below the dense layers, if there are any, and the widths of the latter."""
    if not config.layers:
        return None, _hidden(config, data)
    text, widths = divided(config.layers)
    if config.hidden not in (None, widths):
        raise UsageError("expected --layers or --hidden; got both: write dense:WIDTH in --layers")
    if not data.input_shape:
        raise UsageError("--layers needs all rows on each server, without --data-copies")
    if data.train_sizes.sparse:
        raise UsageError("--layers needs dense rows; these are sparse")
    if _hashes(config, data) or config.precision == "bfloat16":
        raise UsageError("--layers needs --output dense, and --precision float32 or tf32")
    sequence = None if data.table is None else data.table.sequence
    ids = 0 if sequence is None else sequence.ids
    return Backbone.of(text, data.input_shape, ids), widths


def _hidden(config: TrainConfig, data: DataFacts) -> tuple[int, ...]:
    """Return the widths of the hidden layers.

    On sparse rows with one class or number each, a single layer was better, and none with more
    features than rows; docs/batch-policy.md has the measurements. With several labels per row or
    many outputs, and with several servers, they have the same layers as dense rows, unless the
    output layer is hashed. Servers that divide the rows must not choose by the number of their own.
    """
    if config.hidden is not None:
        return config.hidden
    train = data.train_sizes
    if _hashes(config, data):
        return recommend.HASHED_HIDDEN
    one_of_few = data.encoding.kind != "multilabel" and _choices(data) < MANY
    if not (train.sparse and one_of_few and config.cluster is None):
        return recommend.HIDDEN
    return () if train.features > train.rows else recommend.SPARSE_HIDDEN


def _choices(data: DataFacts) -> int:
    """The outputs among which the labels of a row choose; 1 if they are numbers."""
    return 1 if data.encoding.kind in NUMBERS else data.encoding.outputs


def _hashes(config: TrainConfig, data: DataFacts) -> bool:
    if config.output == "auto":
        suits = config.loss not in LOSSES or LOSSES[config.loss].suits_hashing
        return _choices(data) >= MANY and config.hidden != () and suits
    return config.output == "lsh"


def with_recipe(config: TrainConfig, data: DataFacts, network: Network) -> TrainConfig:
    """Return `config` with the recipe and the optimizer that `auto` stands for.

    A network on dense data has the recipe "tabular", and a linear model on sparse data "linear",
    unless the user has chosen an optimizer or its rate, or wants a certain loss as early as
    possible. With several servers it is not measured, and with few rows the best model is one of
    the first, when the rate has not fallen yet. Networks with `--layers` have "tabular" with few
    rows, a rate or a target loss, too: Adagrad hardly trains those with many layers.
    """
    recipe, train = config.recipe, data.train_sizes
    if recipe == "auto":
        linear, many = network.linear, train.rows >= recommend.TABULAR_ROWS
        suits = train.sparse == linear and not network.output_major
        suits = suits and many and not config.lr and not config.target_loss
        chosen = config.optimizer != "auto" or config.cluster
        best = "linear" if linear else "tabular"
        recipe = best if (suits or network.backbone) and not chosen else "fast"
    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = recommend.RECIPES[recipe].optimizer
    return replace(config, recipe=recipe, optimizer=optimizer)


def plan_for(config: TrainConfig, data: DataFacts, network: Network) -> Plan:
    """Return the plan by which the coordinator decides; `config` is a result of `with_recipe`.

    UsageError for unsuitable settings.
    """
    _expect_suitable(config, data, network)
    spec, rows = OPTIMIZERS[config.optimizer], data.train_sizes.rows
    l2 = _recommended_decay(config, network, rows) if config.l2 is None else config.l2
    # The rate grows linearly with the batch for optimizers whose steps are proportional to the
    # gradient. Adaptive ones divide by its size, so the step depends on its noise, which falls with
    # the root of the batch size (Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive
    # Gradient Algorithms").
    scaling = spec.scaling if config.lr_scaling == "auto" else config.lr_scaling
    # Hashed output layers have a large rate, and learned more slowly with a warm-up. So did linear
    # models of few rows; their losses do not rise in the first updates.
    warm_up = 0.0 if network.output_major or network.linear else spec.warm_up
    optimizer = Optimizer(spec.name, l2, spec.momentum, spec.beta2, spec.epsilon, warm_up)
    stopping = _stopping_criteria(config, data, network)
    shape = () if network.backbone is None else network.backbone.inputs
    return Plan(
        identity=Identity(version(), data.fingerprint),
        training=Welcome(
            network.layers,
            network.loss,
            optimizer,
            merge=config.merge,
            merge_every=config.merge_every or 0,
            staleness_damping=_staleness_damping(config, data, network),
            precision=config.precision,
            lsh=_lsh(config, data),
            cpu_teams=config.cpu_teams or 0,
            label_smoothing=config.label_smoothing,
            dropout=config.dropout,
            augmentation=parse_augmentation(config.augment, shape, config.seed),
            seed=config.seed,
            backbone="" if network.backbone is None else str(network.backbone),
        ),
        limits=limits_for(config, rows, hashed=_hashes(config, data)),
        stopping=stopping,
        learning_rate=LearningRate(
            config.lr if config.lr is not None else _recommended_rate(config, data, network),
            scaling,
            recommend.RATE_BATCH,
            recommend.RATE_CAP,
            _schedule(config),
            stopping.epochs or 1,
        ),
        lease_seconds=config.lease_ms / 1000,
        beta=config.beta,
        start_with=config.start_with,
        checkpoint_seconds=config.checkpoint_seconds or math.inf,
        unit=data.encoding.unit,
        targets=data.encoding.targets,
        train_rows=rows,
        validation_rows=_rows(data, "validation"),
        test_rows=0 if config.precedes_refit else _rows(data, "test"),
        keeps_scores=config.data_copies is None,
    )


def policy_settings(config: TrainConfig, data: DataFacts, network: Network) -> PolicySettings:
    """Return the settings of the batch policy for a network and its training rows."""
    critical = recommend.critical_batch(data.train_sizes.rows, dense=mostly_dense(data, network))
    damped = _staleness_damping(config, data, network) == "per-weight"
    return PolicySettings(
        config.alpha,
        config.beta,
        critical_batch=config.critical_batch or critical,
        stale_cost=recommend.DAMPED_COST if damped else 1.0,
        rows_between_pauses=_rows_between_pauses(config, data),
    )


def _staleness_damping(config: TrainConfig, data: DataFacts, network: Network) -> str:
    """Return how GPU workers merge stale changes.

    In a wide sparse layer with Adagrad, steps are large for rare features, and so would be what
    damping by weights leaves out; there, it needed more rows than `root`.
    """
    if config.staleness_damping != "auto":
        return config.staleness_damping
    return "per-weight" if mostly_dense(data, network) else "root"


def mostly_dense(data: DataFacts, network: Network) -> bool:
    """Whether dense layers take so much of a step that CPU threads compute batches together."""
    train = data.train_sizes
    return gains_from_teams(network.layer_views(), train.values / train.rows, sparse=train.sparse)


def _rows_between_pauses(config: TrainConfig, data: DataFacts) -> tuple[int, int]:
    """Return about how many rows are trained on between evaluations: at least, and at most."""
    train, validated = data.train_sizes.rows, _rows(data, "validation")
    if config.target_loss is None or config.eval_seconds is not None or not validated:
        return train, train
    return max(1, min(train, int(FORWARD_FRACTION * validated))), train


def epochs_for(config: TrainConfig, rows: int) -> int | None:
    """Return the maximum number of epochs for `rows` training rows; None if only time limits it."""
    if config.epochs is None and config.max_rows is not None:
        return math.ceil(config.max_rows / rows)
    if config.epochs is not None or config.max_seconds is not None:
        return config.epochs
    most = 1 if config.target_loss is None else recommend.MAX_PER_DEFAULT
    return most * recommend.epochs(rows)


def limits_for(config: TrainConfig, rows: int, *, hashed: bool = False) -> Limits:
    """Return the limits of the batch sizes that the user gives, and what bounds the others.

    There are `rows` training rows. The labels of a batch are negatives for all of its rows where
    the output layer is hashed, so smaller batches learn less from a row.

    A CPU worker of a deterministic run has no limit that depends on measured seconds. Nor does one
    with the policies "fixed" and "hogbatch", which use the smallest batch.
    """
    measured = not config.deterministic and config.policy not in ("fixed", "hogbatch")
    cpu_least = config.min_utilization if measured else 0.0
    adapts, cpu = config.policy == "adaptive", _pair(config.cpu_batch)
    useful = largest_gpu_batch(rows) if adapts else math.inf
    if hashed and adapts and cpu is None:
        cpu = (min(SMALL_CPU_BATCH, largest_cpu_batch(rows)),) * 2
    return Limits(cpu, _pair(config.gpu_batch), config.min_utilization, cpu_least, useful)


def _pair(limits: BatchLimits | None) -> tuple[int, int] | None:
    return None if limits is None else (limits.smallest, limits.largest)


def _stopping_criteria(config: TrainConfig, data: DataFacts, network: Network) -> StoppingCriteria:
    """Return when to stop.

    Patience applies by default only if the user sets no other limit, and no schedule, whose last
    epochs improve the model most. Evaluations in the first epoch would delay the end of a run with
    a target loss, and make several servers merge their models.
    """
    if config.refit and not config.precedes_refit:  # the rows alone end a second run
        config = replace(config, epochs=None, patience=None, max_seconds=None, target_loss=None)
    rows, patience = data.train_sizes.rows, config.patience
    validated, hashed = _rows(data, "validation"), _hashes(config, data)
    target, servers = config.target_loss is not None, config.cluster is not None
    if (patience or config.precedes_refit) and not validated:
        what = "refit" if config.precedes_refit else "stopping early (patience)"
        raise UsageError(
            f"{what} needs validation rows, but there are none: expected a validation-fraction of "
            "at least one row, or validation data"
        )
    epochs, scheduled = epochs_for(config, rows), _schedule(config) != "constant"
    if scheduled and epochs is None:
        raise UsageError(
            f"--schedule {config.schedule} needs the number of epochs that the run takes; give "
            "--epochs besides --max-seconds, or --schedule constant"
        )
    if patience is None:
        limits = config.epochs, config.max_seconds, config.max_rows
        limited = scheduled or any(limit is not None for limit in limits)
        patience = 0 if limited else recommend.patience(rows)
    return StoppingCriteria(
        epochs=epochs,
        max_seconds=config.max_seconds,
        target_loss=config.target_loss,
        eval_seconds=config.eval_seconds,
        keep="best" if config.keep == "best" else "last",
        wait_for_workers=config.wait_for_workers,
        patience=patience if validated else 0,
        by_epoch=config.deterministic,
        average=config.average == "on" or (config.average == "auto" and hashed),
        metric=metric_for(config, data, network),
        max_rows=config.max_rows,
        first_epoch=validated > 0 and config.keep == "best" and not target and not servers,
    )


def metric_for(config: TrainConfig, data: DataFacts, network: Network) -> str | None:
    """Return the metric by which models are compared; None: the loss.

    The default with a hashed output layer is the first metric. Only the active outputs are trained
    there, so the loss over all outputs falls long after the metric is at its best. It is the first
    metric with logarithms of labels, too, because their loss is not in the unit of the labels.
    """
    loss, rows = LOSSES[network.loss], _rows(data, "validation")
    if config.metric == "auto":
        in_logs = loss.encoding == "logs" and data.encoding.targets == 1 and rows
        return loss.metrics[0] if _hashes(config, data) or in_logs else None
    if not rows and not config.refit:  # a second run only shows the metric of the first one
        raise UsageError(f"--metric {config.metric} needs validation rows; there are none")
    if config.metric == "loss":
        return None
    names: Sequence[str] = loss.summed_metrics(data.encoding.targets)  # sums over rows
    if config.data_copies is None:
        scores = keeps_all_scores(rows, network.outputs)
        names = [each.name for each in fitting(loss, scores=scores)]
    if config.metric not in names:
        where = "" if config.data_copies is None else " with --data-copies"
        raise UsageError(
            f"--metric {config.metric} cannot be computed for loss {loss.name}{where}; expected "
            f"one of loss, {', '.join(names)}"
        )
    return config.metric


def _expect_suitable(config: TrainConfig, data: DataFacts, network: Network) -> None:
    """UsageError for settings of classes that are changed and do not suit the loss or the data."""
    loss, rows, scored = LOSSES[network.loss], _rows(data, "validation"), None
    if config.data_copies is not None:
        scored = "the labels of all validation rows, which are divided with --data-copies"
    elif not keeps_all_scores(rows, network.outputs):
        scored = f"at most {MAX_SCORES} scores of validation rows; got {rows * network.outputs}"
    held_out = scored if rows else "validation rows; there are none"
    classes = None
    if not loss.has_probabilities or loss.label_lists:
        classes = f"one class per row (loss logistic or softmax); got loss {loss.name}"
    binary = None
    if classes or loss.encoding != "binary":
        binary = f"two classes with probabilities (loss logistic); got loss {loss.name}"
    if config.label_transform == "log1p" and data.encoding.kind != "logs":
        raise UsageError(
            "--label-transform log1p needs labels that are first encoded by this run, on one "
            "server; remove it, or --data-copies, or the model that training continues from"
        )
    dense = None
    if _hashes(config, data):
        dense = "--output dense, because a hashed layer computes only some of the classes"
    hidden, relu = [layer.activation for layer in network.layers[:-1]], None
    if not hidden or hidden[0] != "relu":
        relu = f"hidden layers with activation relu; got {hidden[0] if hidden else 'none'}"
    needs = {
        "label_vectors": _no_label_vectors(config, data),
        "nearest_rows": _no_nearest_rows(config, data),
        "label_smoothing": classes or dense,
        "dropout": relu,
        "threshold": binary or held_out,
        "temperature": classes or (held_out if config.temperature == "auto" else scored),
    }
    for name in changed(config, needs):
        if getattr(config, name) != "off" and (need := needs[name]):
            raise UsageError(f"--{dashed(name)} {getattr(config, name)} needs {need}")


def has_label_vectors(config: TrainConfig, data: DataFacts) -> bool:
    """Whether label vectors are added to the scores of the network."""
    return config.label_vectors != "off" and _no_label_vectors(config, data) is None


def _no_label_vectors(config: TrainConfig, data: DataFacts) -> str | None:
    """What label vectors need that is missing; None if nothing is."""
    if not _hashes(config, data):
        return "a hashed output layer (--output lsh)"
    if not data.train_sizes.sparse:
        return "sparse rows; these are dense"
    if config.label_vectors.count(":") == 2 and (config.members or 1) > 1:
        return "one model, without --members; remove the temperature, or --members"
    return None if config.data_copies is None else "all rows on each server, without --data-copies"


def has_nearest_rows(config: TrainConfig, data: DataFacts) -> bool:
    """Whether the scores by nearest training rows may be added, too."""
    return config.nearest_rows != "off" and _no_nearest_rows(config, data) is None


def _no_nearest_rows(config: TrainConfig, data: DataFacts) -> str | None:
    """What nearest rows need that is missing; None if nothing is."""
    if config.label_vectors == "off":
        return "label vectors, without --label-vectors off"
    stored = stored_of_rows(data.train_sizes)
    few = (
        None if stored <= STORED else f"at most {STORED:,} values of training rows; got {stored:,}"
    )
    return _no_label_vectors(config, data) or few


def stored_of_rows(train: SetSizes) -> int:
    """The most values that the vectors of training rows have."""
    return min(train.stored, VALUES * train.rows)


def _rows(data: DataFacts, name: SetName) -> int:
    return data.set_sizes[name].rows if name in data.set_sizes else 0


def _lsh(config: TrainConfig, data: DataFacts) -> Lsh | None:
    """Return the hashing settings of the output layer; None if it is not hashed."""
    if not _hashes(config, data):
        return None
    rehash = REHASH if config.cluster is None else REHASH_OF_SERVERS
    settings = parse(config.lsh, data.encoding.outputs, config.seed, rehash)
    return structs.replace(settings, background=not config.deterministic)


def _schedule(config: TrainConfig) -> str:
    """Return the schedule of the learning rate.

    That of a recipe if the user sets no limit that may end the run earlier, and for its optimizer.
    """
    if config.schedule != "auto":
        return config.schedule
    recipe = recommend.RECIPES[config.recipe]
    earlier = config.max_seconds or config.target_loss or config.patience
    return "constant" if earlier or config.optimizer != recipe.optimizer else recipe.schedule


def _recommended_decay(config: TrainConfig, network: Network, rows: int) -> float:
    decay = recommend.RECIPES[config.recipe].decoupled_decay(LOSSES[network.loss], rows)
    if decay is None or not OPTIMIZERS[config.optimizer].decoupled:
        return recommend.weight_decay(rows)
    return decay


def _recommended_rate(config: TrainConfig, data: DataFacts, network: Network) -> float:
    train = data.train_sizes
    return recommend.learning_rate(
        config.optimizer,
        network.loss,
        linear=network.linear,
        mean_square=data.mean_square,
        value_square=data.mean_square * train.rows / max(train.values, 1),
        hashed=network.output_major,
        layers=network.backbone is not None,
    )
