"""Experiment trackers (`--log`): the values of each evaluation, in the tools that compare runs."""
