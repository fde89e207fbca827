"""The state of a run, reconstructed from its directory: events become a picture to show."""
