"""Behaviour tests; the tree mirrors the product."""
