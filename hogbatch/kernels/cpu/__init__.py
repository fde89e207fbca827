"""The CPU backend: compiled by Numba, single-threaded, runs without the interpreter lock.

`network` runs the operations of `dense` and `sparse` for all batches of a lease in one call.
"""
