"""Whose training steps are compared on a device: hogbatch's and PyTorch's, on the same rows."""
