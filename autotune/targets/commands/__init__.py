"""Commands as targets: what people type to train, with the words in it that are knobs."""
