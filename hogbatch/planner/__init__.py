"""Settings that follow from the data and the network: arithmetic, no I/O."""
