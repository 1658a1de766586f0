"""`python -m raptor`."""

import sys

from raptor.cli import main

sys.exit(main())
