"""Locality-sensitive hashing of an output layer: the settings, their text form, their defaults.

In a layer with very many outputs, SLIDE (Chen et al. 2020) computes only those whose weights are in
the same buckets as the layer's input. This module defines the settings; `hogbatch.kernels.cpu.lsh`
implements the hashing.
"""

import math
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec

from hogbatch.errors import UsageError

Family = Literal["simhash", "dwta"]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

# With at least this many outputs, the automatic settings hash the output layer and use the softmax
# loss for label lists. At 10,000 outputs, computing a dense layer and updating it cost a CPU thread
# about the same.
MANY: Final = 10_000


class Lsh(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The settings for hashing the outputs of a layer, looking them up, and updating the tables."""

    family: Family
    hashes: Annotated[int, msgspec.Meta(ge=1, le=30)]  # K, functions of a table; all must match
    tables: Annotated[int, msgspec.Meta(ge=1, le=1024)]  # L
    bits: Annotated[int, msgspec.Meta(ge=1, le=24)]  # a table has 2^bits buckets
    bucket: Annotated[int, msgspec.Meta(ge=1, le=4096)]  # maximum number of outputs in a bucket
    top: Positive  # outputs taken per row: the best of those found, by their estimated scores
    most: NotNegative  # maximum number of outputs found for a batch
    random: NotNegative  # outputs added to a batch at random
    rehash: Positive  # updates before the first re-hash of changed outputs
    growth: Annotated[float, msgspec.Meta(ge=1.0, le=100.0)]  # factor of it after each re-hash
    rebuild: Positive  # re-hashes after which all outputs get new hash functions
    seed: Annotated[int, msgspec.Meta(ge=0)]
    background: bool = True  # build tables during training; False for deterministic runs


AUTO: Final[Family] = "dwta"

# Keys of the text form; K and L are the symbols of the papers.
NAMED: Final = ("bits", "bucket", "top", "most", "random", "rehash", "growth", "rebuild")
KEYS: Final = {"K": "hashes", "L": "tables", **{name: name for name in NAMED}}

HASHES: Final = 4  # K of dwta; simhash uses `bits`
TABLES: Final = 32  # L
LOAD: Final = 16  # average number of outputs in a bucket
# Maximum fraction of all outputs found for a batch; its labels and random outputs are added.
FRACTION: Final = 0.015
REHASH: Final = 100
REHASH_OF_SERVERS: Final = 200  # of one of several servers, which all build tables of their own


def defaults(family: Family, labels: int, seed: int, rehash: int = REHASH) -> Lsh:
    """Return the default settings for a layer of `labels` outputs (measured in docs/slide.md)."""
    bits = min(max(round(math.log2(labels / LOAD)), 4), 20)
    return Lsh(
        family=family,
        hashes=HASHES if family == "dwta" else bits,
        tables=TABLES,
        bits=bits,
        bucket=8 * LOAD,
        top=20,
        most=math.ceil(FRACTION * labels),
        random=math.ceil(0.002 * labels),
        rehash=rehash,
        growth=1.5,
        rebuild=4,
        seed=seed,
    )


def parse(text: str, labels: int, seed: int, rehash: int = REHASH) -> Lsh:
    """Parse "FAMILY:KEY=VALUE,...", "FAMILY" or "auto"; other settings come from `defaults`.

    `rehash` is used unless it is given in the text.
    Raises UsageError for an unknown family or key, and for an invalid value.
    """
    name, _, rest = text.partition(":")
    families: tuple[Family, ...] = get_args(Family)
    named = [AUTO] if name == "auto" else [family for family in families if family == name]
    if not named:
        raise UsageError(f"lsh: expected auto or one of {', '.join(families)}; got {name!r}")
    chosen = defaults(named[0], labels, seed, rehash)
    settings: dict[str, Any] = {}
    for item in rest.split(",") if rest else ():
        key, _, value = item.partition("=")
        if key not in KEYS:
            raise UsageError(
                f"lsh: expected KEY=VALUE with one of the keys {', '.join(KEYS)}; got {item!r}"
            )
        settings[KEYS[key]] = value
    if "hashes" in settings and "bits" not in settings and chosen.family == "simhash":
        settings["bits"] = settings["hashes"]  # each hash of this family is one bit
    types, values = get_type_hints(Lsh, include_extras=True), dict[str, Any]()
    for name, value in settings.items():
        try:
            values[name] = msgspec.convert(value, types[name], strict=False)
        except msgspec.ValidationError as error:
            expected = str(error).partition(", got")[0].removeprefix("Expected ")
            expected = expected.replace("`int`", "a whole number").replace("`float`", "a number")
            key = next(key for key, field in KEYS.items() if field == name)
            raise UsageError(f"lsh: {key} must be {expected}; got {value!r}") from None
    return msgspec.structs.replace(chosen, **values)
