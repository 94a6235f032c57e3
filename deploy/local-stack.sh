#!/usr/bin/env bash
# The whole service on this machine, natively: PostgreSQL, MLflow behind its own authentication, a Ray cluster of a head
# and two worker nodes with token authentication, the REST API, the scheduler. See deploy/README.md.
#   deploy/local-stack.sh up|down|status|kill PART [--dir FOLDER]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if ! [ -x "$python" ] && ! python=$(command -v "${PYTHON:-python3}"); then
  echo "local-stack: no Python with classwise: run make install, or set PYTHON to an interpreter that has it" >&2
  exit 2
fi
if ! "$python" - <<'PYTHON'; then
import sys
from importlib.util import find_spec

needed = ("ray", "mlflow", "typer", "filelock", "yaml", "fastapi", "uvicorn", "apscheduler", "psycopg", "flask_wtf")
if missing := [name for name in needed if find_spec(name) is None]:
    sys.exit(f"local-stack: {sys.executable} lacks {', '.join(missing)}: install classwise[service,server] there")
PYTHON
  exit 2
fi
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m deploy.stack "$@"
