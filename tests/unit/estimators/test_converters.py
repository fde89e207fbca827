"""Estimators that skl2onnx converts, in a pipeline with another step."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import skl2onnx
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hogbatch.errors import UsageError
from hogbatch.estimators.classifier import HogbatchClassifier
from hogbatch.estimators.converters import register_converters
from hogbatch.estimators.regressor import HogbatchRegressor

X = np.random.default_rng(0).normal(3, 2, (120, 4)).astype(np.float32)
SETTINGS = {"hidden": (4,), "epochs": 2, "members": 1}


def converted(estimator, y):
    """The fitted pipeline, and the outputs of its conversion for X."""
    register_converters()
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, y)
    options = {HogbatchClassifier: {"zipmap": False}}  # probabilities as a matrix
    model = skl2onnx.to_onnx(pipeline, X[:1], options=options)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return pipeline, session.run(None, {"X": X})


@pytest.mark.parametrize("classes", [["no", "yes"], [3, 5, 9]])
def test_a_classifier_in_a_pipeline(classes):
    y = np.array(classes)[np.argsort(X[:, : len(classes)], axis=1)[:, 0]]
    pipeline, (label, probabilities) = converted(HogbatchClassifier(**SETTINGS), y)
    assert label.tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_regressor_in_a_pipeline(targets):
    y = 40 + 9 * X[:, :targets].squeeze()
    pipeline, (value,) = converted(HogbatchRegressor(**SETTINGS), y)
    np.testing.assert_allclose(value, pipeline.predict(X).reshape(-1, targets), 1e-5)


def test_an_estimator_of_a_data_frame_is_refused():
    estimator = HogbatchRegressor(**SETTINGS).fit(pd.DataFrame(X, columns=[*"abcd"]), X[:, 0])
    register_converters()
    with pytest.raises(UsageError, match="a matrix of numbers; got a data frame"):
        skl2onnx.to_onnx(estimator, X[:1])
