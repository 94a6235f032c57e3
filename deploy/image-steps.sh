#!/usr/bin/env bash
# What is in the image, step by step: deploy/Dockerfile runs these steps, and so can you, into a folder of your choice.
#   deploy/image-steps.sh install FOLDER cpu|cuda   a virtual environment with classwise and all that a service needs
#   deploy/image-steps.sh check FOLDER cpu|cuda     what it must be able to do
# TORCH_INDEX: where builds of torch without CUDA are, for cpu; PIP_INDEX_URL, PIP_FIND_LINKS and their like are passed on.
set -euo pipefail
step=${1:?install or check} folder=${2:?the folder of the virtual environment} variant=${3:?cpu or cuda}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case $variant in cpu | cuda) ;; *)
  echo "image-steps: expected cpu or cuda, found $variant" >&2
  exit 2
  ;;
esac

CUDA='^(torch|torchvision|triton|cuda-.*|nvidia-.*)$'

# What deploy/requirements.lock names and nothing else, each with its hash. PyTorch's CPU builds have other hashes than the
# locked ones: they are of the locked versions, and need none of CUDA's libraries.
install() {
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --no-cache-dir "uv>=0.5"
  local add=("$folder/bin/uv" pip install --quiet --no-deps --python "$folder/bin/python") index=()
  if [ "$variant" = cpu ]; then
    entries '^(torch|torchvision)$' 1 | sed -n 's/^\([a-z]*==[^ ]*\).*/\1/p' > "$folder/torch.txt"
    if [ -n "${TORCH_INDEX:-}" ]; then index=(--index "$TORCH_INDEX" --index-strategy unsafe-best-match); fi
    UV_FIND_LINKS=${PIP_FIND_LINKS:-${UV_FIND_LINKS:-}} "${add[@]}" "${index[@]}" --requirement "$folder/torch.txt"
    entries "$CUDA" 0 > "$folder/requirements.lock"
  else
    entries . 1 > "$folder/requirements.lock"
  fi
  env -u UV_FIND_LINKS "${add[@]}" --require-hashes --requirement "$folder/requirements.lock"
  "${add[@]}" --build-constraint "$root/constraints.txt" "$root"
  # Byte code now: the image's file system is read-only later, and every Ray worker would compile torch again.
  "$folder/bin/python" -m compileall -q -j 0 "$folder/lib" >/dev/null || true # packages ship templates that are no Python
}

# Entries of the lock whose names fit a pattern (1), or do not (0).
entries() {
  awk -v pattern="$1" -v wanted="$2" '
    /^#/ { next }
    /^[A-Za-z0-9]/ { name = $1; sub(/(\[[^]]*\])?==.*/, "", name); keep = (name ~ pattern) == wanted }
    keep' "$root/deploy/requirements.lock"
}

check() {
  cd / # what is installed, not what lies here
  "$folder/bin/classwise" --help >/dev/null
  "$folder/bin/ray" --version
  "$folder/bin/mlflow" --version
  "$folder/bin/python" - "$variant" "$folder" <<'PYTHON'
import re
import sys
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

variant, folder = sys.argv[1:]
faults = []
texts = [path.read_text() for path in (Path(folder) / name for name in ("requirements.lock", "torch.txt")) if path.exists()]
locked = dict(re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", "\n".join(texts), re.M))
own = {"classwise", "pip", "setuptools", "uv", "wheel"}
found = {re.sub(r"[-_.]+", "-", each.name).lower(): each.version.partition("+")[0] for each in distributions()}
for name in sorted((locked.keys() | found.keys()) - own):
    if locked.get(name) != found.get(name):
        faults.append(f"{name}: expected {locked.get(name, 'nothing')}, found {found.get(name, 'nothing')}")
for name in ("jobs", "services", "tracking", "psycopg", "s3fs", "boto3", "flask_wtf", "ray.serve", "apscheduler"):
    spec = find_spec(name)
    if spec is None:
        faults.append(f"{name}: expected it to be installed")
    elif not str(spec.origin).startswith(folder):
        faults.append(f"{name}: expected it in {folder}, found {spec.origin}")

import torch

if (torch.version.cuda is None) != (variant == "cpu"):
    found = torch.version.cuda or "none"
    faults.append(f"torch: expected a build for {variant}, found CUDA {found}; for cpu set TORCH_INDEX to an index of such builds")
print("\n".join(faults) or f"torch {torch.__version__}, as it should be")
sys.exit(bool(faults))
PYTHON
}

case $step in
  install) install ;;
  check) check ;;
  *)
    echo "image-steps: expected install or check, found $step" >&2
    exit 2
    ;;
esac
