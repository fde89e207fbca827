"""The operations of a contract of kernels."""


def operations(protocol):
    """The names of the methods of `protocol`."""
    return [name for name in vars(protocol) if not name.startswith("_")]
