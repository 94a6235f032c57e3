#!/usr/bin/env bash
# What a container of compose.yaml does. Secrets are read from their files here, so that neither a command line nor the
# container's description holds one.
set -euo pipefail
secrets=${SECRETS:-/run/secrets}
secret() { cat "$secrets/$1"; }

store() { # of MLflow's artifacts; classwise itself stores in a volume
  export AWS_ACCESS_KEY_ID=classwise MLFLOW_S3_ENDPOINT_URL=http://objects:8333 AWS_DEFAULT_REGION=us-east-1
  AWS_SECRET_ACCESS_KEY=$(secret s3-key)
  export AWS_SECRET_ACCESS_KEY
}
cluster() {
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$secrets/ray-token RAY_USAGE_STATS_ENABLED=0
}
signed() { # submissions; workers, which run models of others, have no key
  export CLASSWISE_SIGNING_KEY_PATH=$secrets/signing-key
}
tracked() {
  export MLFLOW_TRACKING_URI=http://mlflow:5000 MLFLOW_TRACKING_USERNAME=classwise
  MLFLOW_TRACKING_PASSWORD=$(secret mlflow-classwise)
  export MLFLOW_TRACKING_PASSWORD
}

scheduled() {
  CLASSWISE_SCHEDULES=postgresql+psycopg://schedules:$(secret schedules-db)@postgres/classwise
  export CLASSWISE_SCHEDULES
}

case ${1:?what to do} in
  mlflow)
    store
    MLFLOW_BACKEND_STORE_URI=postgresql+psycopg://mlflow:$(secret mlflow-db)@postgres/mlflow
    MLFLOW_AUTH_ADMIN_PASSWORD=$(secret mlflow-admin)
    MLFLOW_FLASK_SERVER_SECRET_KEY=$(secret mlflow-flask)
    export MLFLOW_BACKEND_STORE_URI MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY
    export MLFLOW_AUTH_CONFIG_PATH=/tmp/auth.ini MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
    (
      umask 077
      printf '%s\n' "[mlflow]" "default_permission = READ" "admin_username = admin" "auth_cache_ttl_seconds = 60" \
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth" \
        "database_uri = postgresql+psycopg://mlflow:$(secret mlflow-db)@postgres/mlflow_auth" > "$MLFLOW_AUTH_CONFIG_PATH"
    )
    exec mlflow server --app-name basic-auth --workers 1 --host 0.0.0.0 --port 5000 \
      --artifacts-destination s3://mlflow/artifacts --allowed-hosts "mlflow:5000,localhost:*,127.0.0.1:*"
    ;;
  prepare)
    store
    MLFLOW_AUTH_ADMIN_PASSWORD=$(secret mlflow-admin)
    MLFLOW_TRACKING_PASSWORD=$(secret mlflow-classwise)
    export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_TRACKING_PASSWORD
    exec python /etc/classwise/prepare.py
    ;;
  head)
    cluster
    signed
    tracked
    export RAY_JOB_START_TIMEOUT_SECONDS=604800
    exec ray start --head --block --disable-usage-stats --port 6379 --num-cpus 0 --dashboard-host 0.0.0.0 \
      --resources "{\"classwise_audits\": ${AUDITS:-2}}"
    ;;
  worker)
    cluster
    exec ray start --block --disable-usage-stats --address head:6379 --num-cpus "${WORKER_CPUS:-2}"
    ;;
  alive)
    cluster
    exec ray health-check --address localhost:6379
    ;;
  api)
    cluster
    signed
    tracked # the dashboard reads MLflow and the schedules
    scheduled
    exec classwise serve /etc/classwise/settings.yaml --here --host 0.0.0.0 --port 8080
    ;;
  scheduler)
    cluster
    signed
    scheduled
    exec classwise schedule run --address http://head:8265
    ;;
  scheduling)
    scheduled
    exec classwise schedule health
    ;;
  *)
    echo "enter: expected mlflow, prepare, head, worker, alive, api, scheduler or scheduling, found $1" >&2
    exit 2
    ;;
esac
