"""The tag of all processes of one probe, which finds those that left its process group. Imports nothing."""

TAG = "_AUTOTUNE_PROBE"  # environment variable, with a unique value for each probe
