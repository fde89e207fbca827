"""Training data in several files that together do not fit into the memory of one machine.

Each file is a part. `reading` reads one and returns what is needed to plan a run; `decide` derives
encoding, scaler and sizes from the surveys of all parts, without the rows; `reading` then reads the
rows of a part for training. These may run on different machines: they exchange the structs of
`records`, which msgspec encodes.
"""
