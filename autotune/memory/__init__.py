"""Memory predicted before any probe, by a dry run on tensors that have shapes and no contents."""
