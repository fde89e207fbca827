"""One training run: settings that follow from the data, shared memory, processes and results.

training    connects all parts of a run
planning    from settings and data to the network and the coordinator's plan
defaults    recommended values: learning rate, epochs, batch size, weight decay
segments    the shared memory of a run
resume      continuing a run from a checkpoint
results     saving the model and the summary at the end
"""
