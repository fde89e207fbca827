"""How long does a merge of two servers take: NIXL, Ray's object store, pickle? See __main__.py."""
