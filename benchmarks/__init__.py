"""The code behind ``ksmith bench``; what it measured lies in ``results/``."""
