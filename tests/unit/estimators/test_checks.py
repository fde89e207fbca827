"""scikit-learn's own checks of estimators.

The estimators have a small network and few epochs here: with their defaults, the checks take
minutes.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hogbatch import HogbatchClassifier, HogbatchMultilabel, HogbatchRegressor

RESAMPLED = "sample_weight is not equivalent to removing/repeating samples."
EXPECTED_FAILURES = {  # rows are drawn by their weights; scikit-learn's SGD has the same entries
    "check_sample_weight_equivalence_on_dense_data": RESAMPLED,
    "check_sample_weight_equivalence_on_sparse_data": RESAMPLED,
}
FAST = {"hidden": (32,), "epochs": 40, "lr": 0.05}


@pytest.mark.filterwarnings("ignore")  # the checks give unusual data on purpose
@parametrize_with_checks(
    [kind(**FAST) for kind in (HogbatchClassifier, HogbatchRegressor, HogbatchMultilabel)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_check_of_scikit_learn(estimator, check):
    check(estimator)
