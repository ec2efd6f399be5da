"""What holds for every test."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and every process that a test interrupts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
