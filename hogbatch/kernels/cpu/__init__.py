"""The CPU backend: compiled by Numba, single-threaded, runs without the interpreter lock.

`operations` exports the operations of the kernel contract; `network` runs them for all batches of a
lease in one call.
"""
