"""Which processors, batches and policies are fastest on which server? See __main__.py."""
