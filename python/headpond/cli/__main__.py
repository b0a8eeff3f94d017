"""``python -m headpond.cli``."""

import sys

from headpond.cli import main

if __name__ == "__main__":
    sys.exit(main())
