"""The demonstration: the whole path on a small inference engine, in minutes, on any machine."""
