"""Answers that need no model: rules that are read, checked, matched in microseconds and read again when their files change."""

from __future__ import annotations
