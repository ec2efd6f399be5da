"""The model-based sampler: a performance model with priors, fitted to a few probes."""
