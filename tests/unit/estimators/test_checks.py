"""scikit-learn's own checks of estimators.

The estimators have a small network and few epochs here: with their defaults, the checks take
minutes.
"""

import pytest
from sklearn.utils import estimator_checks

from hogbatch import HogbatchClassifier, HogbatchMultilabel, HogbatchRegressor

ANOTHER_ORDER = "an epoch with repeated rows has more updates, and another order of rows"
EXPECTED_FAILURES = {  # scikit-learn's SGD has the same entries
    "check_sample_weight_equivalence_on_dense_data": ANOTHER_ORDER,
    "check_sample_weight_equivalence_on_sparse_data": ANOTHER_ORDER,
}
FAST = {"hidden": (32,), "epochs": 20, "lr": 0.1}
OF_LABELS = (
    "valid_tag_types",
    "classifiers_multilabel_representation_invariance",
    *(f"classifiers_multilabel_output_format_{way}" for way in ("predict", "predict_proba")),
    "classifiers_multilabel_output_format_decision_function",
)


@pytest.mark.filterwarnings("ignore")  # the checks give unusual data on purpose
@estimator_checks.parametrize_with_checks(
    [kind(**FAST) for kind in (HogbatchClassifier, HogbatchRegressor)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_LABELS)
def test_check_of_multilabel(name):
    """The other checks have one class per row."""
    check = getattr(estimator_checks, f"check_{name}")
    check("HogbatchMultilabel", HogbatchMultilabel(**FAST))
