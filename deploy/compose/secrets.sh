#!/usr/bin/env bash
# Makes the secrets of compose.yaml, once: deploy/compose/secrets/, a folder for its owner alone. The files in it are
# readable, since containers see each of them without the folder, as the user 10001.
set -euo pipefail
folder=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/secrets}
umask 077
mkdir -p "$folder"
chmod 700 "$folder"
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in postgres mlflow-db schedules-db mlflow-admin mlflow-classwise mlflow-flask ray-token api-token signing-key \
  s3-key; do
  if ! [ -s "$folder/$name" ]; then random > "$folder/$name"; fi
done
printf '{"identities": [{"name": "classwise", "credentials": [{"accessKey": "classwise", "secretKey": "%s"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}\n' "$(cat "$folder/s3-key")" > "$folder/s3"
chmod 444 "$folder"/*
echo "secrets are in $folder"
