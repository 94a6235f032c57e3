#!/usr/bin/env bash
# PostgreSQL's image runs this once, on an empty volume: one role for MLflow, one for the schedules.
set -euo pipefail
for pair in mlflow:mlflow mlflow_auth:mlflow classwise:schedules; do
  database=${pair%%:*} role=${pair##*:}
  password=$(cat "/run/secrets/$role-db")
  psql --username postgres --quiet -v ON_ERROR_STOP=1 -v role="$role" -v database="$database" -v password="$password" <<'SQL'
SELECT format('CREATE ROLE %I LOGIN PASSWORD %L', :'role', :'password')
  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
CREATE DATABASE :"database" OWNER :"role";
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
SQL
done
