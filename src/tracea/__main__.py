"""``python -m tracea`` is ``tracea``."""

import sys

from tracea.cli.main import main

sys.exit(main())
