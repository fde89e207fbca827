"""Extreme multi-label programs: training time, precision, memory and prediction time."""
