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

install() {
  local options=()
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --no-cache-dir "uv>=0.5"
  if [ "$variant" = cpu ] && [ -n "${TORCH_INDEX:-}" ]; then
    options+=(--index "$TORCH_INDEX" --index-strategy unsafe-best-match)
  fi
  UV_FIND_LINKS=${PIP_FIND_LINKS:-${UV_FIND_LINKS:-}} "$folder/bin/uv" pip install --quiet \
    --python "$folder/bin/python" --constraint "$root/constraints.txt" "${options[@]}" \
    "$root[onnx,postgres,s3,server,service]"
  # Byte code now: the image's file system is read-only later, and every Ray worker would compile torch again.
  "$folder/bin/python" -m compileall -q -j 0 "$folder/lib" >/dev/null || true # packages ship templates that are no Python
}

check() {
  cd / # what is installed, not what lies here
  "$folder/bin/classwise" --help >/dev/null
  "$folder/bin/ray" --version
  "$folder/bin/mlflow" --version
  "$folder/bin/python" - "$variant" "$root/constraints.txt" "$folder" <<'PYTHON'
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

variant, constraints, folder = sys.argv[1:]
faults = []
for line in Path(constraints).read_text().splitlines():
    name, _, wanted = line.partition("==")
    try:
        found = version(name).partition("+")[0]
    except ModuleNotFoundError:
        continue  # the developers' tools
    if wanted and found != wanted:
        faults.append(f"{name}: expected {wanted}, found {found}")
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
