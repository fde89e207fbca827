"""The settings of hashing: text form, defaults, and errors about invalid text."""

from typing import get_args

import msgspec
import pytest

from hogbatch.config.lsh import AUTO, KEYS, MANY, Family, Lsh, defaults, parse
from hogbatch.config.train import FLAGS
from hogbatch.errors import UsageError
from hogbatch.kernels.cpu.lsh.functions import FAMILIES

LABELS = 50_000
LEAST = {key: 0 if key in ("most", "random") else 1 for key in KEYS}
MOST = {key: 2**31 - 1 for key in KEYS} | {"K": 30, "L": 1024, "bits": 24, "bucket": 4096}
for numbers in LEAST, MOST:
    del numbers["growth"]  # which is no whole number


@pytest.mark.parametrize("family", get_args(Family))
@pytest.mark.parametrize("labels", [2, 100, MANY, 670_091, 10**9])
def test_defaults_are_within_the_bounds_of_the_protocol(family, labels):
    made = defaults(family, labels, 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Lsh) == made
    assert made.family == family and made.seed == 3 and made.background


@pytest.mark.parametrize("family", get_args(Family))
def test_few_outputs_are_active_and_buckets_equally_full_however_many_labels_there_are(family):
    for labels in (MANY, 100_000, 670_091):
        made = defaults(family, labels, 0)
        load = labels / 2**made.bits
        assert 11 < load < 23 and 4 * load < made.bucket
        assert made.most + made.random < 0.03 * labels


def test_the_families_are_those_of_the_kernels():
    assert set(get_args(Family)) == set(FAMILIES)


def test_a_family_without_keys_has_the_defaults():
    for family in get_args(Family):
        made = parse(family, LABELS, 7)
        assert made == parse(f"{family}:", LABELS, 7) == defaults(family, LABELS, 7)
    given = msgspec.structs.replace(defaults("dwta", LABELS, 0), hashes=6, tables=20)
    assert parse("dwta:K=6,L=20", LABELS, 0) == given
    assert FLAGS["lsh"].value_type.accepts("dwta:K=6,L=20")
    assert parse("auto", LABELS, 7) == defaults(AUTO, LABELS, 7)


def test_every_key_sets_its_field():
    numbers = {key: str(n) for n, key in enumerate(KEYS, 2)}
    given = numbers | {"growth": "1.75"}
    made = parse("simhash:" + ",".join(map("=".join, given.items())), LABELS, 7)
    for key, field in KEYS.items():
        assert str(getattr(made, field)) == given[key]
    assert (made.family, made.seed) == ("simhash", 7)
    assert type(made.hashes) is int and type(made.growth) is float


def test_each_simhash_function_gives_one_bit_of_the_bucket_number():
    assert parse("simhash:K=9", LABELS, 0).bits == 9
    made = parse("simhash:K=9,bits=6", LABELS, 0)
    assert (made.hashes, made.bits) == (9, 6)
    made = defaults("simhash", LABELS, 0)
    assert made.hashes == made.bits
    assert parse("dwta:K=9", LABELS, 0).bits == defaults("dwta", LABELS, 0).bits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected auto or one of simhash, dwta; got ''"),
        ("nonsense:K=1", "expected auto or one of simhash, dwta; got 'nonsense'"),
        ("DWTA", "got 'DWTA'"),
        ("dwta:k=1", "expected KEY=VALUE with one of the keys K, L, bits, bucket"),
        ("dwta:K=3,", "got ''"),
        ("dwta:seed=3", "got 'seed=3'"),
        ("dwta:K=x", "K must be a whole number; got 'x'"),
        ("dwta:K", "K must be a whole number"),
        ("dwta:K=2.5", "K must be a whole number"),
        *(
            (f"dwta:{key}={least - 1}", f"{key} must be a whole number >= {least}")
            for key, least in LEAST.items()
        ),
        *(
            (f"dwta:{key}={most + 1}", f"{key} must be a whole number <= {most}")
            for key, most in MOST.items()
        ),
        ("dwta:growth=0.5", "growth must be a number >= 1.0"),
        ("dwta:growth=nan", "growth must be a number >= 1.0"),
        ("dwta:growth=inf", "growth must be a number <= 100.0"),
    ],
)
def test_invalid_text_is_refused_in_one_sentence(text, expected):
    for parser in (lambda text: parse(text, LABELS, 0), FLAGS["lsh"].value_type.accepts):
        with pytest.raises(UsageError) as caught:
            parser(text)
        message = str(caught.value)
        assert message.startswith("lsh: ") and expected in message and "\n" not in message
        assert "$[" not in message  # msgspec's position in the struct means nothing to a user
