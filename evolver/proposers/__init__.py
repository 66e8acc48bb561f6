"""Proposers: whatever can suggest a candidate. They share one interface, in ``base.py``."""
