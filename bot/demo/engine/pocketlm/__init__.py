"""A small decoder-only language model with routed experts."""

from .config import Config
from .engine import Engine
from .model import Model

__all__ = ["Config", "Engine", "Model"]
