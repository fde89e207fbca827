"""Export of trained models to other formats.

`graph` describes a model as a graph of operators of ONNX, which `columns` and `outputs` build; the
other modules write the graph to a file.
"""
