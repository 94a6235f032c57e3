"""Makes the bucket of MLflow's artifacts and an account of MLflow's, if they are not there."""

from __future__ import annotations

import os

import boto3
import requests

SERVER = "http://mlflow:5000/api/2.0/mlflow/users"


def main() -> None:
    """Do both; raises when a server refuses."""
    store = boto3.client("s3", endpoint_url=os.environ["MLFLOW_S3_ENDPOINT_URL"])
    if "mlflow" not in {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}:
        store.create_bucket(Bucket="mlflow")
    admin = ("admin", os.environ["MLFLOW_AUTH_ADMIN_PASSWORD"])
    if requests.get(f"{SERVER}/get", params={"username": "classwise"}, auth=admin, timeout=60).status_code != 200:
        body = {"username": "classwise", "password": os.environ["MLFLOW_TRACKING_PASSWORD"]}
        requests.post(f"{SERVER}/create", json=body, auth=admin, timeout=60).raise_for_status()


if __name__ == "__main__":
    main()
