"""Packs the files of a folder into one text file, as many as fit: ``packing.py FOLDER FILE BYTES``.

The text is JSON: name to content in base64. The smallest files come first, so that what a
large trace cannot say for want of room, its status still says.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path


def pack(folder: Path, most_bytes: int) -> dict[str, str]:
    """Return the contents by name."""
    found, used = {}, 0
    for path in sorted(folder.glob("*"), key=lambda p: p.stat().st_size):
        text = base64.b64encode(path.read_bytes()).decode()
        used += len(text)
        if used > most_bytes:
            break
        found[path.name] = text
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(pack(Path(sys.argv[1]), int(sys.argv[3]))))
