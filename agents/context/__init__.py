"""What the model is told: prompts from a session, and the pure steps that change a session."""
