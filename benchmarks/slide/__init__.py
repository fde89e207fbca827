"""Training times to a P@1 of networks with very many labels."""
