"""What all tests of the package share."""

import os
import signal

# What the user has calibrated decides nothing here, and no test stores anything there.
os.environ["XDG_CONFIG_HOME"] = "/dev/null"

# A shell starts jobs in the background with SIGINT ignored, children inherit that, tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
