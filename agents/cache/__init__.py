"""The exact cache: an answer given before to the very same question; questions that only mean the same are `agents.semantic`."""
