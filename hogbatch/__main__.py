"""`python -m hogbatch`, equivalent to the command `hogbatch`."""

import sys

from hogbatch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
