"""Models as they are stored."""


def to_stored(network, tensors, params):
    """Copy tensors without padding, by name, into params[P]; padding becomes zero."""
    params[:] = 0
    for tensor in network.tensors():
        tensor.view(params)[:] = tensors[tensor.name]
