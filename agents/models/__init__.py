"""Models on this machine: pulled, listed, inspected and found by name; how one runs is `agents.runtime`."""
