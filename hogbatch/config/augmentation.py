"""Augmentation: random changes of the pictures of a batch, in training only.

A picture is mirrored left-right with probability 1/2, and then moved by up to `shift` cells down or
up, and across. Cells that it does not cover then have the value of the nearest one that it covers,
so this does not depend on the scaling of the values.

Random numbers are those of `kernels.dropout`, of columns 0 (mirrored from 2^31 on), 1 and 2 (the
shifts down and across) of layer `LAYER`: an update changes a row in the same way on all backends.
"""

import re
from typing import Final, NamedTuple

from hogbatch.config.backbone import show_shape
from hogbatch.config.layers import Shape
from hogbatch.errors import UsageError

LAYER: Final = 0xFFFFFFFF  # not a number of a layer


class Augmentation(NamedTuple):
    """The augmentation of a run."""

    shape: Shape  # (height, width, channels)
    flip: bool
    shift: int  # below height and width
    seed: int


def parse(text: str, shape: Shape, seed: int) -> Augmentation | None:
    """Read the value of `--augment` for inputs of `shape`, () without `--layers`; None for "none".

    UsageError if the inputs are no pictures, or too small.
    """
    if text == "none":
        return None
    shift = int(re.sub(r"\D", "", text) or 0)
    if not shape or min(shape[:2]) <= max(shift, 1):
        raise UsageError(
            f"--augment {text} needs pictures (--layers) with a height and a width above "
            f"{max(shift, 1)}; got {show_shape(shape) or 'no --layers'}"
        )
    return Augmentation(shape, "flip" in text, shift, seed)
