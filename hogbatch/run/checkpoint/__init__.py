"""Checkpoints of a run, and the run directory that contains them."""
