"""``python -m ldrf``."""

import sys

from ldrf.cli import main

sys.exit(main())
