"""What a person typed as a command: which of its words are knobs."""
