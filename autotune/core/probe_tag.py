"""The mark of all processes of one probe, by which those that left its process group are found. No imports at all."""

TAG = "_AUTOTUNE_PROBE"  # environment variable, with a unique value for each probe
