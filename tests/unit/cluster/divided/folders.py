"""Folders of data files, written from the same rows in several formats, and read as parts."""

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import scipy.sparse

from hogbatch.cluster.divided.decide import decide
from hogbatch.cluster.divided.reading import read_held_out, read_part, survey
from hogbatch.cluster.surveys import list_parts
from hogbatch.data.order import Fractions
from hogbatch.data.raw import ReadOptions


def sent(record):
    """The struct as another machine receives it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))


def surveys_of(folder, options=ReadOptions(), fractions=Fractions(0), seed=0):  # noqa: B008 (frozen)
    """Surveys of all files of a folder."""
    files = list_parts(Path(folder))

    return [
        sent(survey(files[number], number, options, fractions=fractions, seed=seed))
        for number in range(len(files))
    ]


def divided(folder, options=ReadOptions(), fractions=Fractions(0), seed=0, **settings):  # noqa: B008
    """The divided data of a folder."""
    surveys = surveys_of(folder, options, fractions, seed)
    settings |= {"fractions": fractions, "seed": seed}
    return decide(Path(folder), surveys, **settings)


def pieces_of(data, options=ReadOptions()):  # noqa: B008 (frozen)
    """The rows of all parts, as a server reads them."""
    given = sent(data.reading), options
    held_out = [read_held_out(each, *given) for each in sent_all(data.held_out)]
    return [*(read_part(each, *given) for each in sent_all(data.parts)), *held_out]


def sent_all(records):
    return [sent(each) for each in records]


def contents(examples):
    """The rows in dense form with their labels: a matrix [N, F] and a list of lists."""
    inputs, labels = examples.inputs, examples.labels
    values = inputs.dense
    if examples.sparse:
        shape = (examples.rows, examples.features)
        values = scipy.sparse.csr_array((inputs.values, inputs.indices, inputs.indptr), shape)
        values = values.toarray()
    if not len(labels.indptr):
        return values, [[label] for label in labels.values.tolist()]
    return values, [part.tolist() for part in np.split(labels.indices, labels.indptr[1:-1])]


def sorted_rows(sets):
    """The rows and labels of several sets, in an order that only depends on the rows."""
    found = [contents(each) for each in sets]
    values = np.concatenate([values for values, _ in found])
    labels = [label for _, labels in found for label in labels]
    order = np.lexsort(np.round(values, 5).T)
    return values[order], [labels[place] for place in order]


def write_svm(path, values, labels, base=1):
    """Lists of labels are separated by commas; zeros are left out."""
    lines = []
    for row, own in zip(values, labels, strict=True):
        cells = [f"{place + base}:{row[place]:.6g}" for place in np.flatnonzero(row)]
        own = own if isinstance(own, list) else [own]
        lines.append(" ".join([",".join(map(str, own)), *cells]))
    path.with_suffix(".svm").write_text("\n".join(lines) + "\n")


def write_xmc(path, values, labels):
    """As svm, from 0, with a header."""
    write_svm(path, values, labels, base=0)
    rows = path.with_suffix(".svm").read_text()
    path.with_suffix(".svm").unlink()
    header = f"{len(values)} {values.shape[1]} 40\n"
    path.with_suffix(".xmc").write_text(header + rows)


def write_csv(path, values, labels):
    """With a header; the label is the last column."""
    names = [f"x{place}" for place in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names).assign(y=labels)
    frame.to_csv(path.with_suffix(".csv"), index=False)


def write_sparse_npz(path, values, labels):
    matrix = scipy.sparse.csr_array(values)
    arrays = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(path.with_suffix(".npz"), y=np.array(labels), **arrays)


WRITERS = {"svm": write_svm, "xmc": write_xmc, "csv": write_csv, "sparse npz": write_sparse_npz}
