"""The names of torch.compile's modes, for the knob and for the code that compiles a model."""

DEFAULT, GRAPHS, TUNED, REGIONAL = "default", "reduce-overhead", "max-autotune-no-cudagraphs", "regional"
