"""Hashed output layers: the active outputs of a batch, found by locality-sensitive hashing.

    functions   draws the hash functions of all families
    hashing     computes bucket numbers of vectors
    tables      hash tables from bucket numbers to outputs
    sketches    estimates dot products from random projections
    selection   selects the active outputs of a batch
    neurons     scores, gradients and updates of the active outputs
    network     trains all batches of a lease

In names, a "neuron" is an output of a hashed layer. SLIDE: Chen et al. 2020, "In Defense of Smart
Algorithms over Hardware Acceleration for Large-Scale Deep Learning Systems" (MLSys). Shapes use the
letters of `contract`, and L for the number of tables.
"""
