"""Carries events and keeps state, decides nothing; `agents` decides."""
