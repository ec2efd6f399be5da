"""What holds for every test."""

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and every process that a test interrupts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
