"""Tests of what runs inside the sandbox; these parts hold no untrusted code."""
