"""The mark of all processes of one probe, by which those that left its process group are found. No imports at all."""

TAG = "_AUTOTUNE_PROBE"  # environment variable, with a unique value for each probe


def socket_folder_prefix(tag: str) -> str:
    """Return the prefix of the folders in which a probe's processes pass tensors on.

    It is short: the path of a socket has 107 bytes at most.
    """
    return f"pymp-{tag[:8]}"
