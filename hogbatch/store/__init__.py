"""The data plane: memory shared by all processes of a run, without copies.

There are two shared memory segments, neither with a name on disk. "data" holds the training and
test set; the coordinator writes it once, and workers get a descriptor with which they can only
read it. "shared" holds the epoch orders, the model and the fences; all processes read and write it
without locks.

    layout, merge             arithmetic only
    pages                     huge pages, spread over NUMA nodes
    segment, attach           shared memory, and how workers attach it
    dataset, model, fence     views of the arrays in the segments
"""
