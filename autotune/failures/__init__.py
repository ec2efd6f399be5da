"""All ways in which a measurement fails: rules with their sources, and the outcomes that they give."""
