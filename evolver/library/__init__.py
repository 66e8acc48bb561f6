"""The library of what worked: verified strategies, kept across runs in one store of the user's.

``entry.py`` says what is kept, ``harvest.py`` reads it from a finished run, ``store.py`` keeps
it, ``offer.py`` chooses what a search is told, and may not be told.
"""
