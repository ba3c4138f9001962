"""`python -m htareport`."""

import sys

from htareport.cli import main

if __name__ == "__main__":
    sys.exit(main())
