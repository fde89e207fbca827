"""The data plane: what all processes of a run share, without a byte copied between them.

Two memory segments without a name on disk. "data" holds the train and test set; the coordinator
writes it once, then seals it, and nobody can map it for writing any more. "shared" holds the
epoch orders, the model and the fences; everyone reads and writes it, without locks.

    layout, merge         arithmetic
    pages                 huge ones, spread over NUMA nodes
    segment, handover     memory, and how its descriptors reach a worker
    dataset, model, fence what lies in it, as views
"""
