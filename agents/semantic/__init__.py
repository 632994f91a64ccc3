"""Answers given before to questions that mean the same: encoders, the guards that similarity is not trusted without, one index a scenario; exact repeats are `agents.cache`."""
