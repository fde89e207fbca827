"""How long does moving a model to a worker and back take? See __main__.py."""
