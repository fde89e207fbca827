"""The measurements of benchmarks/faults.py, one a module."""
