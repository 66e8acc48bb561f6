"""Triton kernels as text: each file is a reference and a candidate at once, never imported."""
