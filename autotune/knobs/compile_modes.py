"""The modes of torch.compile, as the knob and what compiles a model call them."""

DEFAULT, GRAPHS, TUNED, REGIONAL = "default", "reduce-overhead", "max-autotune-no-cudagraphs", "regional"
