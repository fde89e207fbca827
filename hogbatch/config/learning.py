"""The settings of what is learned: the data, the model, and the steps of the optimizer."""

import re
from dataclasses import dataclass
from typing import Final

from hogbatch.config.backbone import FORM, is_divided
from hogbatch.config.flags import Group
from hogbatch.config.layers import HIDDEN_ACTIVATIONS
from hogbatch.config.losses import CHOICES, QUANTILE
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sets import SetName
from hogbatch.config.values import (
    BYTES,
    COUNT,
    FRACTION,
    INTEGER,
    NAMES,
    NON_NEGATIVE,
    PATH,
    POSITIVE,
    SEED,
    TEXT,
    UP_TO_ONE,
    WIDTHS,
)

TABLE_SCALES: Final = ("robust", "ple", "quantile")  # of the columns of tables
SCALES: Final = ("auto", "none", "standard", "max", *TABLE_SCALES)


def _parses_as_lsh(text: str) -> bool:
    from hogbatch.config import lsh  # here: evaluating a model does not require msgspec

    return bool(lsh.parse(text, lsh.MANY, 0))  # UsageError for other text


FEATURES: Final = INTEGER.where("from 1 to 2^31 - 1", lambda value: 0 < value < 2**31)
DECIMAL: Final = TEXT.where(". or ,", (".", ",").__contains__, ".|,")
LAYERS: Final = TEXT.where(FORM, is_divided, "LAYER,...")
SEQUENCE: Final = TEXT.where(
    "words or characters, with :LENGTH or without",
    lambda text: bool(re.fullmatch(r"((words|characters)(:[1-9]\d{0,4})?)?", text)),
    "words|characters[:LENGTH]",
)
LSH: Final = TEXT.where("hashing settings", _parses_as_lsh, "FAMILY:KEY=VALUE,...")


@dataclass(frozen=True, slots=True)
class LearningConfig:
    """The first settings of a :class:`hogbatch.config.train.TrainConfig`."""

    data: str = Group.DATA.flag(
        "", PATH, "training data: file, - for standard input, or name of the bundled sample"
    )
    validation: str | None = Group.DATA.optional(
        PATH,
        "validation data, which choose the kept model and the end: file, or - for standard input",
    )
    validation_fraction: float | None = Group.DATA.optional(
        FRACTION,
        "fraction of the training rows used for validation when --validation is not given "
        "(default: 0.1, below 10,000 rows 0.2 and at least 50 rows)",
    )
    test: str | None = Group.DATA.optional(
        PATH,
        "test data, on which the kept model is evaluated once: file, or - for standard input",
    )
    test_fraction: float = Group.DATA.flag(
        0.2, FRACTION, "fraction of the rows of DATA used as the test set when --test is not given"
    )
    group: str | None = Group.DATA.optional(
        TEXT,
        "column of a table by whose values the rows are split into training, validation and test "
        "sets: no value is in two of them; it is not a feature",
    )
    time: str | None = Group.DATA.optional(
        TEXT,
        "column of a table with numbers or dates: the test rows are the last ones by it, and the "
        "validation rows the last ones before them",
    )
    label: tuple[str, ...] = Group.DATA.flag(
        (),
        NAMES,
        "label column of a table: name, or number from 0 (default: last column); several columns "
        "with numbers are predicted together",
    )
    sample_weight: str | None = Group.DATA.optional(
        TEXT,
        "column of a table, or array of a .npz file, with the weights of the rows, which multiply "
        "their losses; it is not a feature",
    )
    class_weight: str | None = Group.DATA.optional(
        PATH,
        "weights of the classes, which multiply those of their rows: balanced (all classes have "
        "the same total), or a file with lines such as spam,2.5",
        "balanced|FILE",
    )
    drop: tuple[str, ...] = Group.DATA.flag((), NAMES, "columns of a table that are not used")
    categorical: tuple[str, ...] = Group.DATA.flag(
        (),
        NAMES,
        "columns of a table with categories: one feature per value (default: text columns)",
    )
    numeric: tuple[str, ...] = Group.DATA.flag(
        (), NAMES, "columns of a table with numbers (default: found by inspection)"
    )
    text: tuple[str, ...] = Group.DATA.flag(
        (), NAMES, "columns of a table whose words and word pairs are features (TF-IDF)"
    )
    sequence: str = Group.DATA.flag(
        "",
        SEQUENCE,
        "the text becomes a sequence for --layers: an id for each of its words or characters, at "
        "most LENGTH (default: as many as nearly all training rows need)",
    )
    decimal: str | None = Group.DATA.optional(
        DECIMAL,
        "decimal mark of columns of a table such as 1.234, which may be 1234 (default: found by "
        "inspection)",
    )
    index_base: str = Group.DATA.choice(
        "auto", "number of the first feature in libsvm files", ("auto", "0", "1")
    )
    header: str = Group.DATA.choice(
        "auto",
        "presence of a header line in CSV files; auto: detected from the cells",
        ("auto", "yes", "no"),
    )
    features: int | None = Group.DATA.optional(
        FEATURES, "number of features of libsvm data (default: from the highest index)"
    )
    scale: str = Group.DATA.choice(
        "auto",
        "feature scaling: standard (mean 0, standard deviation 1), max (largest absolute value 1); "
        "for tables also robust (median 0, distance of the quartiles 1, bounded by 3), ple "
        "(standard and piecewise linear), quantile (place among the quantiles); auto: standard for "
        "tables, ple for many rows with predicted numbers; else max for sparse and standard for "
        "dense data, if any feature needs it",
        SCALES,
    )
    bad_lines: float = Group.DATA.flag(
        0.0, UP_TO_ONE, "maximum fraction of malformed lines to skip in a text file"
    )
    memory: int | None = Group.DATA.optional(
        BYTES,
        "memory of the run; rows that do not fit into it are kept on disk, see docs/data.md "
        "(default: what the machine and its cgroup leave)",
    )
    data_cache: str = Group.DATA.flag(
        "auto",
        PATH,
        "cache of parsed text files: auto (~/.cache/hogbatch/data), off, or a directory",
        "DIR",
    )

    hidden: tuple[int, ...] | None = Group.MODEL.optional(
        WIDTHS,
        "widths of the hidden layers; empty text: linear model (default: 512,512; with --output "
        "lsh 128; with sparse rows of one class or number 256, or a linear model if there are more "
        "features than rows)",
    )
    layers: str = Group.MODEL.flag(
        "",
        LAYERS,
        "layers of a network for pictures or sequences, in place of --hidden, as in "
        "conv:32x3x3,relu,pool:2,dense:128 (docs/pictures.md)",
    )
    input_shape: str = Group.MODEL.flag(
        "",
        TEXT,
        "shape of a row for --layers, as in 28x28x1 (default: that of the array X of a .npz file); "
        "the pictures of a folder are resized to it",
        "HEIGHTxWIDTHxCHANNELS",
    )
    activation: str = Group.MODEL.choice(
        "relu", "activation function of the hidden layers", HIDDEN_ACTIVATIONS
    )
    output: str = Group.MODEL.choice(
        "auto",
        "output layer: dense, or lsh (only the outputs found by hashing are computed); "
        "auto: lsh for 10,000 or more outputs",
        ("auto", "dense", "lsh"),
    )
    lsh: str = Group.MODEL.flag("auto", LSH, "hashing settings of --output lsh, see docs/slide.md")
    label_vectors: str = Group.MODEL.choice(
        "auto",
        "addition of the similarity of a row to the training rows of each label, see "
        "docs/slide.md; auto: with --output lsh and sparse rows; WEIGHT:EXPONENT, and the "
        "TEMPERATURE by which all scores are divided, instead of those that are best on the "
        "validation rows",
        ("auto", "on", "off"),
        "WEIGHT:EXPONENT[:TEMPERATURE]",
        r"\d{1,6}(\.\d{1,6})?:-?\d(\.\d{1,6})?(:(?=.*[1-9])\d{1,6}(\.\d{1,6})?)?",
    )
    nearest_rows: str = Group.MODEL.choice(
        "auto",
        "with label vectors, addition of the similarity of a row to the nearest training rows of "
        "each label; the model file then contains the training rows, see docs/slide.md; WEIGHT "
        "instead of the one that is best on the validation rows",
        ("auto", "off"),
        "WEIGHT",
        r"\d{1,6}(\.\d{1,6})?",
    )
    loss: str = Group.MODEL.choice(
        "auto",
        "loss function; auto: chosen from the labels; quantile:Q for any Q between 0 and 1",
        ("auto", *CHOICES),
        "quantile:Q",
        QUANTILE,
    )
    label_transform: str = Group.MODEL.choice(
        "auto",
        "transformation of labels that are numbers, with loss squared: log1p: the model is trained "
        "on log(1 + label); auto: log1p if the labels have a heavy tail and short runs have a "
        "lower error on held-out training rows with it",
        ("auto", "none", "log1p"),
    )
    category_means: str = Group.MODEL.choice(
        "auto",
        "features of a category with many values besides one for each value: auto: the mean label "
        "of the training rows with the same value, if the labels are numbers or at most 10 classes",
        ("auto", "none"),
    )
    number_values: str = Group.MODEL.choice(
        "auto",
        "features of values of whole numbers, with scale auto; auto: if short runs are better",
        ("auto", "features", "none"),
    )
    init: str | None = Group.MODEL.optional(
        PATH,
        "model file to continue from on other data: its parameters, its network and its encoding "
        "of columns and labels",
        "MODEL",
    )

    members: int | None = Group.MODEL.optional(
        COUNT,
        "number of models whose predictions are averaged (an ensemble): trained with the seeds N "
        "of --seed, N+1 and so on, with other validation rows each (default: 5 for 100 to 9,999 "
        "rows that are trained on in a few seconds, and for linear models of more sparse rows, "
        "else 1)",
        "K",
    )

    recipe: str = Group.OPTIMIZATION.choice(
        "auto",
        "defaults of optimizer, schedule and weight decay: tabular: the best model in the end; "
        "linear: the same for linear models on sparse rows; fast: a good model early; auto: fast, "
        "but tabular for networks on dense data and linear for linear models on sparse rows from "
        "2,000 training rows on, unless --target-loss, --optimizer, --lr or --cluster is given; "
        "tabular with --layers, unless --optimizer or --cluster is given; "
        "for categories with many values, short runs decide between fast and tabular, if their "
        "other settings have defaults",
        ("auto", "tabular", "linear", "fast"),
    )
    optimizer: str = Group.OPTIMIZATION.choice(
        "auto", "update rule; auto: adagrad with --recipe fast, else adam", ("auto", *OPTIMIZERS)
    )
    lr: float | None = Group.OPTIMIZATION.optional(
        POSITIVE,
        "learning rate for batches of 16 rows (default: depends on optimizer, network, loss, data)",
        "RATE",
    )
    lr_scaling: str = Group.OPTIMIZATION.choice(
        "auto",
        "scaling of the learning rate with the batch size; auto: depends on the optimizer",
        ("auto", "none", "linear", "sqrt"),
    )
    schedule: str = Group.OPTIMIZATION.choice(
        "auto",
        "factor of the learning rate, which changes after each epoch; all but constant need a "
        "number of epochs; auto: cosine if only the epochs end the run, and not with --recipe fast",
        ("auto", "constant", "cosine", "flat-cos", "one-cycle", "coslog4"),
    )
    l2: float | None = Group.OPTIMIZATION.optional(
        NON_NEGATIVE,
        "L2 penalty, with --optimizer adam a decoupled weight decay (default: by --recipe; with "
        "fast it decreases with the number of rows, 0 from 10,000 rows on)",
    )
    label_smoothing: float = Group.OPTIMIZATION.flag(
        0.0,
        FRACTION,
        "fraction of the label of a training row that is distributed evenly over all classes, for "
        "loss logistic or softmax of classes",
    )
    dropout: float = Group.OPTIMIZATION.flag(
        0.0,
        FRACTION,
        "fraction of the outputs of hidden layers that each update leaves out, with --activation "
        "relu",
    )
    augment: str = Group.OPTIMIZATION.choice(
        "none",
        "random changes of pictures in training, for --layers: flip: half of them are mirrored "
        "left-right; shift:N: they are moved by up to N cells, down or up and across",
        ("none", "flip"),
        "[flip,]shift:N",
        r"flip|(flip,)?shift:[1-9]\d{0,5}",
    )
    seed: int = Group.OPTIMIZATION.flag(
        0, SEED, "random seed for the split, row order and initial weights"
    )
    deterministic: bool = Group.OPTIMIZATION.switch(
        "bitwise reproducible training: one CPU thread, evaluation at the end of epochs",
    )

    @property
    def held_out_files(self) -> dict[SetName, str]:
        """The files of rows that are held out, by set."""
        files: dict[SetName, str | None] = {"validation": self.validation, "test": self.test}
        return {name: file for name, file in files.items() if file is not None}
