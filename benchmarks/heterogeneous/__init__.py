"""Are CPU and GPU together faster than the better of the two alone? See __main__.py."""
