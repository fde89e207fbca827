"""Does a GPU worker's training step reach the limit of the device? See __main__.py."""
