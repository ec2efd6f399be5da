"""The parts of a training step of one configuration, and the user's lines that take time: `autotune profile`."""
