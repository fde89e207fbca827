from hogbatch.kernels import contract
from hogbatch.model.optimizers import OPTIMIZERS


def test_the_table_names_the_optimizers_of_the_kernels():
    assert {name: spec.kind for name, spec in OPTIMIZERS.items()} == contract.OPTIMIZERS


def test_each_optimizer_keeps_the_state_its_formula_needs():
    assert {name: spec.slots for name, spec in OPTIMIZERS.items()} == {
        "sgd": 0,
        "momentum": 1,
        "adagrad": 1,
        "adam": 2,
    }


def test_optimizers_that_divide_by_a_root_keep_away_from_zero():
    assert all(OPTIMIZERS[name].epsilon > 0 for name in ("adagrad", "adam"))


def test_running_means_forget():
    specs = OPTIMIZERS.values()
    assert all(0 <= spec.momentum < 1 and 0 <= spec.beta2 < 1 for spec in specs)
    assert all(spec.learning_rate > 0 for spec in specs)
