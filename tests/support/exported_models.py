"""Models of all kinds, without training, and rows that try each part of their encodings."""

from dataclasses import replace

import numpy as np
import pandas as pd

from hogbatch.config.backbone import Backbone
from hogbatch.data.encode import Encoding
from hogbatch.data.scale import Scaler
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.given import training_set
from hogbatch.data.table.kinds import TableOptions
from hogbatch.data.table.means import with_means
from hogbatch.model.network import Network
from hogbatch.model.trained import Model

ROWS, FEATURES = 300, 7
UNNAMED = ["constant", "two", "size", "year"]  # columns of a table without names
TWO, COUNTS = Encoding("binary", ("no", "yes"), 1), Encoding("counts", (), 1, scale=2.5)
THREE = Encoding("classes", ("a", "b", "ä"), 3)
LISTS = Encoding("multilabel", (), 6)
NUMBERS = Encoding("real", (), 1, offset=40.0, scale=2.5)
LOGS = Encoding("logs", (), 1, offset=1.5, scale=0.5, largest=20.0)
TARGETS = Encoding("real", (), 2, offset=(40.0, -1.0), scale=(2.5, 1e4))
RANDOM = np.random.default_rng(5)
MATRIX = RANDOM.normal(3, 2, (20, FEATURES)).astype(np.float32)
PICTURES = "6x5x2,norm,conv:4x3x3:s2,norm,relu,pool:1x2,conv:3x2x2:d2,selu,avgpool:2x1"
SEQUENCES = (
    "1x6x3,conv1d:4x3:valid,tanh,conv1d:4x2,add:1,relu,gru:6,lstm:5,lstm:4:both,gru:3:both,last"
)
TEXTS = pd.DataFrame({"gloss": [f"The {n % 7} colours, of {n % 3} Äpfel\n" for n in range(30)]})
LATER = pd.DataFrame(  # missing and unknown values, numbers beyond those of the training rows
    {
        "size": [1.5, np.nan, 4.0, -1e30, 3.4e38, 0.25],
        "year": [2000.5, 2026, np.nan, 1990, 2030, 2010],
        "two": [0, 1, 1, np.nan, 7, -7],
        "label": ["red", "blue", "a rare one", "unknown", "", "nUlL"],
        "town": ["town 3", "town 699", "Town 3", None, "?", "town 20"],
        "day": pd.to_datetime(
            [
                "2013-05-01 12:30",
                "2013-12-31",
                None,
                "1969-12-31 23:59:59",
                "2100-01-01",
                "2013-03",
            ],
            format="mixed",
        ),
    }
)


def training_rows():
    """A table with columns of all kinds but text; "label" is a feature."""
    chance = np.random.default_rng(3)
    towns = [f"town {n}" for n in chance.integers(0, 700, ROWS)]
    return pd.DataFrame(
        {
            "size": np.where(chance.random(ROWS) < 0.1, np.nan, chance.lognormal(0, 2, ROWS)),
            "year": chance.integers(1990, 2027, ROWS),
            "two": chance.integers(0, 2, ROWS),
            "label": [*chance.choice(["red", "blue", "green"], ROWS - 2), *2 * ["a rare one"]],
            "town": pd.Series(towns).where(chance.random(ROWS) > 0.1),
            "day": pd.to_datetime("2013-01-01")
            + pd.to_timedelta(chance.integers(0, 500 * 86_400, ROWS), unit="s"),
        }
    )


def encoding_of(rows, scale="robust", means=0, values=False, **options):
    """An encoding; with `means`, its categories have the mean labels of so many targets."""
    raw = training_set(rows, np.arange(len(rows)), None, TableOptions(**options))
    encoding = TableEncoding.fit(raw.table, None, scale)
    encoding = encoding.with_values(raw.table.table, None) if values else encoding
    if not means:
        return encoding
    targets = np.random.default_rng(4).normal(size=(len(rows), means))
    return with_means(encoding, encoding.select(raw.table.table), {"train": None}, targets)[0]


def tensors_of(network, seed):
    random = np.random.default_rng(seed)
    return {
        each.name: random.standard_normal(each.shape, np.float32)
        / np.sqrt(np.float32(each.shape[0]))
        for each in network.tensors()
    }


def model_of(loss, encoding, table=None, hidden=(8,), activation="tanh", members=1, **parts):
    """A model with random weights; `parts` are further fields of `Model`."""
    features, output_major = table.features if table else FEATURES, parts.pop("hashed", False)
    if backbone := parts.pop("backbone", None):
        backbone = Backbone.parse(backbone)
        features = backbone.features
    build = features, hidden, encoding.outputs, activation, loss, output_major, backbone
    network = Network.build(*build)
    tensors, *others = (tensors_of(network, seed) for seed in range(members))
    about = {"data": "rows.csv", "label": "y"}
    model = Model(network, tensors, encoding, None, None, about, table=table, others=(*others,))
    return replace(model, **parts)


def models():
    """Each model by name, with rows for it."""
    rows = training_rows()
    categories, dates = rows[["label", "town"]], rows[["day", "size"]]
    many = pd.concat(7 * [rows[["year", "size", "label"]]])
    standard, quantile = encoding_of(rows, "standard"), encoding_of(rows, "quantile")
    scaler = Scaler(np.arange(7.0) * 1e5, np.arange(1.0, 8.0) / 3)
    sparse = Scaler(np.zeros(7), np.arange(1.0, 8.0) / 3)
    numbers = encoding_of(rows.assign(constant=1)[UNNAMED].to_numpy(), "max")
    cases = {
        "two classes": model_of("logistic", TWO, encoding_of(rows), (8, 4), "relu", threshold=0.3),
        "classes, quantiles": model_of("softmax", THREE, quantile, activation="selu"),
        "number, piecewise linear": model_of(
            "squared", NUMBERS, encoding_of(rows, "ple"), activation="sigmoid"
        ),
        "values of numbers": model_of("squared", NUMBERS, encoding_of(many, "ple", values=True)),
        "targets, dates": model_of("huber", TARGETS, encoding_of(dates, "standard")),
        "quantile": model_of("quantile:0.9", NUMBERS, encoding_of(rows, "none")),
        "linear, categories": model_of("softmax", THREE, encoding_of(categories), ()),
        "mean labels of categories": model_of("softmax", THREE, encoding_of(rows, means=3)),
        "without names": model_of("hinge", Encoding("binary", (False, True), 1), numbers, ()),
        "matrix": model_of("softmax", Encoding("classes", (2.0, 5.5), 2), scaler=scaler),
        "labels": model_of("multilabel", LISTS, scaler=sparse),
        "hashed output layer": model_of("multilabel-softmax", LISTS, hashed=True),
        "ensemble of two classes": model_of("logistic", TWO, standard, members=3, threshold=0.6),
        "ensemble of classes": model_of("softmax", Encoding("classes", (3, 7, 9), 3), members=2),
        "ensemble of labels": model_of("multilabel", LISTS, members=2),
        "counts": model_of("poisson", COUNTS, hidden=()),
        "ensemble of counts": model_of("poisson", COUNTS, hidden=(), members=3),
        "logarithms": model_of("squared-log", LOGS, hidden=()),
        "ensemble of numbers": model_of("absolute", TARGETS, members=2),
        "pictures": model_of(
            "softmax", THREE, backbone=PICTURES, scaler=Scaler(*2 * [np.ones(60)])
        ),
        "sequences": model_of("squared", NUMBERS, hidden=(), backbone=SEQUENCES, members=2),
        "ensemble of hinge": model_of("hinge", TWO, standard, members=2),
    }
    kinds = {"words": "conv1d:3x2,max", "characters": "gru:5:both,lstm:4,gru:3,lstm:3:both,last"}
    for unit, above in kinds.items():
        table = encoding_of(TEXTS, f"{unit}:9", text=("gloss",), sequence=f"{unit}:9")
        layers = f"1x9x1,embed:{table.sequence.ids}x4,{above}"
        cases[unit] = model_of("softmax", THREE, table, backbone=layers)
    later = {
        "without names": LATER.assign(constant=1)[UNNAMED].to_numpy(),
        "logarithms": 100 * MATRIX,  # predictions beyond the largest label
        "counts": 100 * MATRIX,  # scores beyond the largest logarithm of a count
        "ensemble of counts": 100 * MATRIX,
        "pictures": RANDOM.normal(size=(20, 60)).astype(np.float32),
        **dict.fromkeys(
            ("words", "characters"), pd.DataFrame({"gloss": ["", "of THE sea 3", *TEXTS.gloss[:3]]})
        ),
        "sequences": RANDOM.normal(size=(20, 18)).astype(np.float32),
    }
    return {
        name: (model, later.get(name, LATER if model.table else MATRIX))
        for name, model in cases.items()
    }
