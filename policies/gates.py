"""Every acceptance rule, as pure functions of numbers.

What an interval allows one to say (design.md section 3), for one workload and for a problem.
"""

from __future__ import annotations

from typing import Literal

Word = Literal["faster", "slower", "same", "ambiguous"]
CensusWord = Literal["faster", "slower", "same", "ambiguous", "unimproved"]


def interval_verdict(*, low: float, high: float, lower_99: float, threshold: float) -> Word:
    """Return what a speedup's interval says.

    ``faster`` when the one-sided 99 % lower bound exceeds ``threshold``; ``slower`` when the
    interval lies wholly below its inverse; ``same`` when it lies wholly between the two.
    """
    if lower_99 > threshold:
        return "faster"
    if high < 1 / threshold:
        return "slower"
    if low >= 1 / threshold and high <= threshold:
        return "same"
    return "ambiguous"


def problem_verdict(overall: Word, *, any_slower: bool) -> Word:
    """Return the verdict of a problem: never ``faster`` while one workload is ``slower``."""
    return "ambiguous" if overall == "faster" and any_slower else overall


def census_verdict(word: CensusWord, *, unimproved: bool) -> CensusWord:
    """Return the verdict once it is known what ran.

    A candidate whose device work is the reference's or the library's, none of its own, is
    ``unimproved`` whatever its time, unless it is ``slower``, which says more.
    """
    return "unimproved" if unimproved and word != "slower" else word
