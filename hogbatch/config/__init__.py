"""Settings: what can be set, how it is written, and which values are valid.

train     the settings of `hogbatch train`, from flags, TOML or Python
values    types of values and their checks
lsh       settings of a hashed output layer
"""
