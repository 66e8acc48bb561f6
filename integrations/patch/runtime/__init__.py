"""Code that is copied, as text, into the kernel files that ksmith writes."""
