"""The fastest processors, batches and policies of described servers. See __main__.py."""
