"""Configuration: the settings, how they are written, and which values are valid.

values       value types, their conversions and conditions
flags        the properties of a flag: group, type, help
learning     settings of data, model and optimizer, the first part of the table of flags
train        the settings of `hogbatch train`: the table of flags
arguments    the table as arguments of the command line
sources      flags, a TOML file and defaults, merged and validated
lsh          settings of a hashed output layer
layers       kinds of layers; like the next two, plain descriptions without computation
losses       losses, and the labels that they need
optimizers   optimizers, their settings and slots
"""
