"""Commands as targets: the command line that starts a training, in which some words are knobs."""
