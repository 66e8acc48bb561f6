"""A folder that goes first in PYTHONPATH; Python imports ``sitecustomize`` from it by itself."""
