"""The model: its network, losses, optimizers and metrics, the model file, and prediction.

losses, optimizers    one table each, from which everything that depends on them is derived
network               a stack of layers, and where its parameters lie in memory
metrics               metrics of the best columns of each row, in an evaluation of a model file
footprint             how much memory training a model takes
file                  the model file
prediction            predictions and evaluation from a model file
"""
