"""Before the first probe: settings, inspection of target and machine, what is searched, and the study to open."""
