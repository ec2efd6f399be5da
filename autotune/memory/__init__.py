"""Memory predicted before any probe, by a shape run (a training step on tensors that have shapes and no contents)."""
