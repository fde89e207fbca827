"""The worker processes: `hogbatch worker cpu RUN_DIR` and `hogbatch worker gpu RUN_DIR`.

The launcher starts the modules by name. Runs in one process and rehearsals train with the same
code.
"""
