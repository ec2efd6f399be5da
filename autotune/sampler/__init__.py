"""The samplers: Optuna's own behind the guard, and one with a performance model that is fitted to a few probes."""
