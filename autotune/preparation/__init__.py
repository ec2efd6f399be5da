"""Before the first probe: settings, a look at target and machine, what is searched, and the study that is opened."""
