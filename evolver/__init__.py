"""The search: archive, proposers, run store and report, over one problem at a time."""
