"""What all tests of the package share."""

import signal

# A shell starts jobs in the background with SIGINT ignored, children inherit that, tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
