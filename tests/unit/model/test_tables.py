"""No module but the tables and the kernels' rules depends on which losses and optimizers exist.

Elsewhere a comparison with a name, or with the number of one loss or optimizer, must be a property
in the tables of hogbatch.config.losses and hogbatch.config.optimizers instead.
"""

import ast

from hogbatch.config.losses import LOSSES
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels import contract
from tests.support.tracked_files import ROOT, python_files

TABLES = {"hogbatch/config/losses.py", "hogbatch/config/optimizers.py"}
FORMULAS = {  # of losses and of update rules: they compare the numbers of single ones
    "hogbatch/kernels/contract.py",
    "hogbatch/kernels/reference.py",
    "hogbatch/kernels/reference_losses.py",
    "hogbatch/kernels/cpu/losses.py",
    "hogbatch/kernels/cpu/rules.py",
}
# What a name means elsewhere: "multilabel" is a kind of labels too.
NAMES = {*LOSSES, *OPTIMIZERS} - {"multilabel"}
NUMBERS = {  # constants of contract.py that stand for one loss or optimizer
    name
    for name in vars(contract)
    if name == "SOFTMAX_MANY" or name.lower().replace("_", "-") in {*LOSSES, *OPTIMIZERS}
}
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in python_files("hogbatch", "workers")
}


def mentions(node):
    """The names and numbers of losses and optimizers that occur in an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value in NAMES:
            yield part.value
        elif isinstance(part, ast.Name | ast.Attribute):
            name = part.id if isinstance(part, ast.Name) else part.attr
            if name in NUMBERS:
                yield name


def decisions(source):
    """Whatever in `source` is decided by a name or a number: "line: name"."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare():
                decided = [node]
            case ast.Dict():
                decided = [key for key in node.keys if key is not None]
            case ast.Subscript():
                decided = [node.slice]
            case ast.match_case():
                decided = [node.pattern]
            case _:
                continue
        yield from (f"{node_line(node)}: {name}" for part in decided for name in mentions(part))


def node_line(node):
    return getattr(node, "lineno", getattr(getattr(node, "pattern", None), "lineno", 0))


def test_nothing_is_decided_by_the_name_of_a_loss_or_optimizer():
    checked = SOURCES.keys() - TABLES - FORMULAS
    found = {path: list(decisions(SOURCES[path])) for path in sorted(checked)}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_decisions_by_name_are_found_and_other_mentions_allowed():
    for source in (
        *('slow = loss in ("softmax", "hinge")', 'RATES = {"adagrad": 0.1}'),
        *("if kind != contract.SGD: pass", 'match name:\n    case "adam": pass'),
    ):
        assert list(decisions(source)), source
    assert not list(decisions('lr = choose("adagrad", help="softmax") if kind in ADAPTIVE else 0'))
    assert set(SOURCES) >= TABLES | FORMULAS
