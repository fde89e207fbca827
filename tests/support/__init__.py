"""Shared by several tests: processes of a run, cases, oracles and checks of the documentation."""
