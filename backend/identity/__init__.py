"""Signing in with what the company has already: see `entrance.py` for how, `deciding.py` for whom."""
