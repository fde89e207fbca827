"""Training that begins with a model file, on other data."""

from typing import Final

from hogbatch.config.effect import changed, expect_effect
from hogbatch.config.flags import as_text, dashed
from hogbatch.config.losses import LOSSES
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.model.file import load_model
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from hogbatch.run.segments import RunSegments

ENCODING: Final = (
    *("drop", "categorical", "numeric", "text", "sequence", "decimal", "scale", "features"),
    *("label_transform", "category_means", "number_values", "layers", "input_shape"),
)


def initial_model(config: TrainConfig) -> Model | None:
    """The model that a run begins with; None if its weights are random.

    DataError for the file, UsageError for settings without effect.
    """
    if config.init is None:
        return None
    reason = "has no effect with --init, which takes it from the model"
    expect_effect(dict.fromkeys(changed(config, ENCODING), reason))
    model = load_model(config.init)
    if model.others or (config.members or 1) > 1:
        raise UsageError(
            f"--init continues one model: expected a file with one, and no --members; got "
            f"{len(model.members)} in {config.init}, and --members {config.members or 1}; train "
            "the first model with --members 1"
        )
    return model


def network_of(config: TrainConfig, model: Model) -> Network:
    """The network of `model`; UsageError for settings of another network."""
    network, usual = model.network, TrainConfig()
    own = {
        "hidden": network.hidden,
        "activation": network.layers[0].activation,
        "loss": network.loss,
    }
    for name, value in own.items():
        accepted = value, getattr(usual, name), LOSSES[network.loss].alias
        if (given := getattr(config, name)) not in accepted:
            raise UsageError(
                f"--{dashed(name)} {as_text(given) or 'none'}: expected that of {config.init}, "
                f"{as_text(value) or 'none'}; leave it out, or train without --init"
            )
    return network


def start_from(segments: RunSegments, model: Model) -> None:
    """Begin with the parameters of `model`, and optimizer slots of 0."""
    start = segments.model.copy()
    for name, tensor in model.network.from_stored(start.params).items():
        tensor[:] = model.tensors[name]
    segments.start_from(start)
