"""The model: network, losses, optimizers, metrics, model file and prediction.

losses, optimizers    the tables of losses and optimizers
layers                descriptions of layers
network               a list of layers, and the positions of its parameters in memory
metrics               metrics of the best outputs of each row, for a model file
footprint             the memory that training a model needs
file                  the model file
prediction            predictions and evaluation from a model file
"""
