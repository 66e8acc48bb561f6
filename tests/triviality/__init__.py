"""Wins with labels: would a maintainer of an inference engine take this kernel?

``cases/`` is written by hand, a reference, a candidate, figures with their source, a label and
its reason each; ``labelled.yml`` is what follows from it. A third, chosen by the hash of a case's
id, is held out: no threshold in ``policies/default.yml`` was ever changed for it. Labels and
thresholds have one author, and most figures are modelled, so that agreement with them shows that
the rules say what was meant, not that every maintainer would agree.
"""
