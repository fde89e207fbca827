"""Locality-sensitive hashing of an output layer: the settings, their text form, their defaults.

SLIDE (Chen et al. 2020) computes, of a layer with very many neurons, only those whose weights fall
into the same buckets as the layer's input. What is decided about that is decided here; the hashing
itself is `hogbatch.kernels.cpu.lsh`.
"""

import math
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec

from hogbatch.errors import UsageError

Family = Literal["simhash", "wta", "dwta", "minhash"]
Insertion = Literal["fifo", "reservoir"]
Sampling = Literal["vanilla", "union", "topk", "threshold", "nearest"]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

# From so many outputs on the layer is hashed, and label lists are learnt by softmax, where the
# user leaves both to us. A dense layer of 10,000 costs a CPU thread about as much as its updates.
MANY: Final = 10_000


class Lsh(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a layer's neurons are hashed, found again, and kept up to date."""

    family: Family
    hashes: Annotated[int, msgspec.Meta(ge=1, le=30)]  # K: of one table, all must agree
    tables: Annotated[int, msgspec.Meta(ge=1, le=1024)]  # L
    bits: Annotated[int, msgspec.Meta(ge=1, le=24)]  # a table has 2^bits buckets
    bucket: Annotated[int, msgspec.Meta(ge=1, le=4096)]  # neurons that a bucket holds
    insertion: Insertion  # who stays in a full bucket: the last, or each with the same chance
    sampling: Sampling  # which of the neurons found for a row are taken
    top: Positive  # that a row finds: the most frequent (topk), the first (vanilla), the best
    seen: Positive  # tables that a neuron must be found in (threshold)
    most: NotNegative  # found neurons of a batch at most
    random: NotNegative  # neurons of a batch that are added at random
    rehash: Positive  # updates to the first re-hash of changed neurons
    growth: Annotated[float, msgspec.Meta(ge=1.0, le=100.0)]  # of that interval, each time
    rebuild: Positive  # every so many re-hashes, all neurons get new functions
    seed: Annotated[int, msgspec.Meta(ge=0)]
    background: bool = True  # tables are built beside training; not if each run must be the same


AUTO: Final[Family] = "dwta"

# Keys of the text form; K and L are what the papers call them.
KEYS: Final = {
    "K": "hashes",
    "L": "tables",
    "bits": "bits",
    "bucket": "bucket",
    "insertion": "insertion",
    "sampling": "sampling",
    "top": "top",
    "seen": "seen",
    "most": "most",
    "random": "random",
    "rehash": "rehash",
    "growth": "growth",
    "rebuild": "rebuild",
}

HASHES: Final = {"wta": 4, "dwta": 4, "minhash": 2}  # K; of simhash it is `bits`
TABLES: Final = 32  # L
LOAD: Final = 16  # neurons that fall into a bucket on average
# Of all neurons, the share that may be found for a batch; its labels and random ones come on top.
FRACTION: Final = 0.015


def defaults(family: Family, labels: int, seed: int) -> Lsh:
    """Settings for a layer of `labels` neurons (docs/slide.md has the measurements)."""
    bits = min(max(round(math.log2(labels / LOAD)), 4), 20)
    return Lsh(
        family=family,
        hashes=HASHES.get(family, bits),
        tables=TABLES,
        bits=bits,
        bucket=8 * LOAD,
        insertion="fifo",
        sampling="nearest",
        top=20,
        seen=2,
        most=math.ceil(FRACTION * labels),
        random=math.ceil(0.002 * labels),
        rehash=100,
        growth=1.5,
        rebuild=4,
        seed=seed,
    )


def parse(text: str, labels: int, seed: int) -> Lsh:
    """Settings from "FAMILY:KEY=VALUE,...", "FAMILY" or "auto", the rest by `defaults`.

    UsageError that names what was got and what was expected.
    """
    name, _, rest = text.partition(":")
    families: tuple[Family, ...] = get_args(Family)
    named = [family for family in families if family == name] or [AUTO] * (name == "auto")
    if not named:
        raise UsageError(f"lsh: expected auto or one of {', '.join(families)}; got {name!r}")
    chosen = defaults(named[0], labels, seed)
    given: dict[str, Any] = {}
    for item in rest.split(",") if rest else ():
        key, _, value = item.partition("=")
        if key not in KEYS:
            raise UsageError(f"lsh: expected keys out of {', '.join(KEYS)}; got {item!r}")
        given[KEYS[key]] = value
    if "hashes" in given and "bits" not in given and chosen.family == "simhash":
        given["bits"] = given["hashes"]  # each hash of this family is one bit
    fields = {name: getattr(chosen, name) for name in chosen.__struct_fields__}
    try:
        return msgspec.convert(list((fields | given).values()), Lsh, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"lsh: {_explained(str(error), given, list(fields))}") from None


def readable(text: str) -> bool:
    """Whether `parse` takes `text`; else its UsageError."""
    parse(text, MANY, 0)
    return True


WORDS: Final = {"`int`": "a whole number", "`float`": "a number"}


def _explained(complaint: str, given: dict[str, Any], fields: list[str]) -> str:
    """msgspec's complaint about one of `given`, with its key in place of the field's position."""
    what, _, place = complaint.partition(" - at `$[")
    field = fields[int(place.rstrip("]`"))]
    key = next(key for key, name in KEYS.items() if name == field)
    expected = what.partition(", got")[0].partition("Expected ")[2]
    for word, plain in WORDS.items():
        expected = expected.replace(word, plain)
    if not expected:  # of a name
        expected = "one of " + ", ".join(get_args(get_type_hints(Lsh)[field]))
    return f"{key} must be {expected}; got {given[field]!r}"
