"""The model: network, memory, metrics, model file and prediction.

network               a list of layers, and the positions of its parameters in memory
metrics               metrics of the best outputs of each row, for a model file
footprint             the memory that training a model needs
trained               a trained model in use
file                  the model file
tensors               writes the safetensors format piece by piece
prediction            predictions and evaluation from a model file
"""
