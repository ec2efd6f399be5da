"""Where a training step of one configuration goes, and which lines of the user's code cost time: `autotune profile`."""
