"""Decides what each event is answered with; `streams` carries, `schemas` is what crosses."""
