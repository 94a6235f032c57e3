#!/usr/bin/env bash
# What the image is made of, and under which licences.
#   deploy/supply.sh lock       renew deploy/requirements.lock: every distribution with version and hashes
#   deploy/supply.sh licences   renew deploy/LICENCES.md from the metadata of what is locked, and refuse unknown ones
#   deploy/supply.sh audit      ask the advisory database about every locked version (needs the internet)
# The lock is for Linux on x86-64 with Python 3.11 and the torch that the default index serves, which is the CUDA one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${BIN:-$root/.venv/bin}
lock=$root/deploy/requirements.lock

lock() {
  local extras=()
  while read -r extra; do extras+=(--extra "$extra"); done < <("$bin/python" "$root/deploy/supply.py" extras)
  # From the index alone: wheels that lie on this machine may be other builds, with other hashes.
  # The lock itself is no input: it is renewed, and constraints.txt holds what is tested.
  (cd "$root" && env -u UV_FIND_LINKS "$bin/uv" pip compile pyproject.toml "${extras[@]}" --quiet \
    --constraint constraints.txt --python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
    --only-binary :all: --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --no-header --upgrade \
    --output-file "$lock.new")
  { echo "# Made by deploy/supply.sh lock; install with: uv pip install --require-hashes -r requirements.lock"
    cat "$lock.new"; } >"$lock"
  rm "$lock.new"
}

licences() {
  local report
  report=$(mktemp)
  # The metadata of exactly the locked versions; nothing is installed, and a pip of today fetches no wheel for it.
  env -u PIP_FIND_LINKS "$bin/uv" tool run pip --python "$bin/python" install --dry-run --ignore-installed --no-deps --quiet --require-hashes \
    --report "$report" --requirement "$lock"
  "$bin/python" "$root/deploy/supply.py" licences "$report"
  rm "$report"
}

audit() {
  "$bin/uv" tool run pip-audit --strict --require-hashes --disable-pip --requirement "$lock"
}

case ${1:-} in
  lock) lock ;;
  licences) licences ;;
  audit) audit ;;
  *) echo "supply: expected lock, licences or audit, found ${1:-nothing}" >&2; exit 2 ;;
esac
