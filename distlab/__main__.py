"""`python -m distlab` is `distlab`."""

import sys

from distlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
