"""Every way in which a measurement fails: rules with their sources, and the outcome that they give."""
