"""Which tier runs the tests: on the readable twins, or the long one of `make torture`."""

import os
from pathlib import Path

TORTURE = bool(os.environ.get("TENSORWIRE_TORTURE"))
PURE = os.environ.get("TENSORWIRE_PURE", "0") not in ("", "0")
TESTS = Path(__file__).parent.parent
