"""The worker processes: `hogbatch worker cpu RUN_DIR` and `hogbatch worker gpu RUN_DIR`.

The library does not import this package; the launcher starts the modules by name.
"""
