"""Answers given before to questions that mean the same: encoders, the guards beside similarity, an index a scenario; exact repeats are `agents.cache`."""
