"""What outlives a conversation: persons' facts across sessions, and when things are erased; one session's context is `agents.context`."""
