"""One training run: setup, shared memory, processes and results.

training      runs all steps in order; `hogbatch.train`
setup         checks, run directory, data, network and plan, before memory is allocated
planning      the network and the coordinator's plan, from settings and data
defaults      recommended values: learning rate, epochs, batch size, weight decay
platform      what a run trains on: the interface
this_server   this server with worker processes, as a platform
this_process  training on a thread of this process, for small data
callbacks     functions of the caller that are called during a run
segments      the shared memory segments
processes     the control and data plane, and the launched workers
components    the coordinator with its recorder, snapshots and loop
launch        starting and restarting worker processes
rundir        the run directory
checkpoint    snapshots, and checkpoints on disk
arrays        arrays and data frames in place of files
resume        the checkpoint to resume from
results       the model file, the summary and the final message
"""
