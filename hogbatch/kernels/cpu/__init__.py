"""The CPU backend: compiled by Numba, one thread, no interpreter lock.

`operations` gathers the contract's names; `network` runs a whole lease of them in one call.
"""
