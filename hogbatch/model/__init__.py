"""The model: its network, losses, optimizers and metrics, the model file, and prediction.

losses, optimizers    one table each; everything else that depends on them reads it from there
network               a stack of layers, and where its parameters lie in memory
metrics               metrics that an evaluation of a model file adds
footprint             how much memory training a model takes
file                  the model file
prediction            predictions and evaluation from a model file
"""
