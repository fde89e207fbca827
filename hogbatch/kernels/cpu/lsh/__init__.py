"""Which neurons of a wide layer may matter to a row, found by locality-sensitive hashing.

    functions   the hash functions of all families: drawn here
    hashing     vectors to bucket numbers
    chance      random numbers for compiled code
    tables      bucket numbers to neurons
    selection   the neurons that a batch computes
    neurons     their scores, gradients and steps
    network     a whole lease of that

SLIDE: Chen et al. 2020, "In Defense of Smart Algorithms over Hardware Acceleration for Large-Scale
Deep Learning Systems" (MLSys). Shape letters beside those of `contract`: L tables.
"""
