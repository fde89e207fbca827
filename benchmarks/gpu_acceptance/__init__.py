"""Does hogbatch work on this GPU, and does it reach its targets? See __main__.py."""
