"""What a problem is, whether a candidate solves it, and how much faster it is.

The room promises one thing: a verdict that noise, cheating and accident cannot
fool (design.md section 4). It knows nothing of search, repositories or GitHub.
"""
