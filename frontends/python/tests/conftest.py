"""What all tests of the package share."""

import os
import signal
import sys
import tempfile
from pathlib import Path

# What the user has calibrated decides nothing here, and no test stores anything there.
os.environ["XDG_CONFIG_HOME"] = "/dev/null"

# Caches that tests start have their log files here.
_STATE = tempfile.TemporaryDirectory(prefix="penstock-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# A shell starts jobs in the background with SIGINT ignored, children inherit that, tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is tested is the build tree, where there is one: .venv holds a copy of what was compiled when
# setup/link-python.sh ran last. PYTHONPATH names another.
_BUILT = Path(__file__).parents[3] / "build/release/python"
if "PYTHONPATH" not in os.environ and next(_BUILT.glob("penstock/_core*.so"), None):
    os.environ["PYTHONPATH"] = str(_BUILT)
    sys.path.insert(0, str(_BUILT))

from caching import cache  # noqa: E402, F401  a fixture; it needs the path that was set above
