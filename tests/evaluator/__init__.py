"""Tests of the evaluator room."""
