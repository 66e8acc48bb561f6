#!/usr/bin/env bash
# Makes .venv with everything that `make demo` and `make test` need. Safe to run again.
#
#   PYTHON=python3.12 scripts/setup.sh     another interpreter
#   KSMITH_TORCH=2.12.0 scripts/setup.sh   another torch (2.11 to 2.13)
#   KSMITH_TORCH_CUDA=1 scripts/setup.sh   the CUDA build although no GPU is here (or 0: the CPU build although one is)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
torch=${KSMITH_TORCH:-2.13.0}
stamp=.venv/.ksmith-setup

say() { printf '\033[1m%s\033[0m\n' "$*"; }

"$python" - <<'PY' || { echo "ksmith needs Python 3.11 or newer; set PYTHON=/path/to/python3.x" >&2; exit 3; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

wanted=$(cat pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)-$torch
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && .venv/bin/ksmith --help >/dev/null 2>&1; then
    exit 0
fi

say "Making .venv with $("$python" --version)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip --disable-pip-version-check)

has_gpu() { [ "${KSMITH_TORCH_CUDA:-}" = 1 ] || { [ "${KSMITH_TORCH_CUDA:-}" != 0 ] && nvidia-smi -L 2>/dev/null | grep -q GPU; }; }

if .venv/bin/python -c 'import torch' 2>/dev/null; then
    say "torch $(.venv/bin/python -c 'import torch; print(torch.__version__)') is there already"
elif has_gpu; then
    say "Installing torch $torch (CUDA build, about 3 GB)"
    "${pip[@]}" install --quiet "torch==$torch"
else
    # The CPU build has a version of its own, which PyPI does not carry: first what pip is
    # configured to look at, then PyTorch's index of CPU builds (about 200 MB).
    say "Installing torch $torch (CPU build; no NVIDIA GPU was found)"
    "${pip[@]}" install --quiet "torch==$torch+cpu" 2>/dev/null ||
        "${pip[@]}" install --quiet "torch==$torch+cpu" --extra-index-url https://download.pytorch.org/whl/cpu
fi

say "Installing ksmith and what its tests need"
"${pip[@]}" install --quiet --editable '.[dev]'
echo "$wanted" >"$stamp"
.venv/bin/ksmith doctor || true
