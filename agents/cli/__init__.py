"""The commands: the only place that wires parts together; what they wire is in `streams` and the rest of `agents`."""
