"""The precision check: whether a dtype trains like full precision, by paired runs."""
