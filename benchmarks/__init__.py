"""Benchmarks: one module or sub-package per question, started by `scripts/bench NAME [flags]`.

    common    data sets, runs of hogbatch, the search for peers' settings, machine, report, figures
    peers     the frameworks hogbatch is compared with, one module each

A question imports hogbatch, workers, `common`, `peers` and its own sub-package, and nothing else of
the project (tests/unit/benchmarks/test_layout.py). Results are kept in `results/`.
"""
