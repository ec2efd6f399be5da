"""Races between contestants that the user names: which of them trains faster, measured in interleaved rounds."""
