"""Estimators with the interface of scikit-learn, which is an extra: hogbatch[sklearn]."""
