"""Raw tables: scores, seconds and memory beside pandas and scikit-learn. See __main__.py."""
