"""What crosses a boundary: records, pipe messages, settings, deadlines and errors; imports nothing of ours."""
