"""pin.sh puts digests in the place of tags, as a registry says them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from tests.deploy.manifests import FOLDER
from tests.ports import free_port

SCRIPT = FOLDER.parent / "pin.sh"
TAGS = ("0.1.0-cpu", "0.1.0-cuda")
TOOLS = shutil.which("skopeo") is None or shutil.which("docker-registry") is None


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A registry with an image of each tag, and their digests."""
    port = free_port()
    config = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(tmp_path / "data")}}}
    (tmp_path / "config.yml").write_text(yaml.safe_dump({**config, "http": {"addr": f"127.0.0.1:{port}"}}))
    with (tmp_path / "log").open("w") as output:
        process = subprocess.Popen(["docker-registry", "serve", tmp_path / "config.yml"], stdout=output, stderr=output)
    try:
        end = time.monotonic() + 20
        while not _answers(f"http://127.0.0.1:{port}/v2/"):
            assert time.monotonic() < end and process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        digests = {tag: _pushed(tmp_path / tag, f"127.0.0.1:{port}/team/classwise:{tag}", tag) for tag in TAGS}
        yield f"127.0.0.1:{port}/team/", digests
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


def _pushed(folder: Path, name: str, content: str) -> str:
    """An image without layers; the digest of its manifest."""
    folder.mkdir()
    body = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}, "author": content}
    config = json.dumps(body).encode()
    digest = hashlib.sha256(config).hexdigest()
    (folder / digest).write_bytes(config)
    kind = "application/vnd.oci.image"
    described = {"mediaType": f"{kind}.config.v1+json", "digest": f"sha256:{digest}", "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": described, "layers": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    words = ["skopeo", "copy", "--quiet", "--insecure-policy", "--preserve-digests", "--dest-tls-verify=false"]
    subprocess.run([*words, f"dir:{folder}", f"docker://{name}"], check=True, capture_output=True)
    return "sha256:" + hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


@pytest.mark.skipif(TOOLS, reason="skopeo and docker-registry are not installed")
def test_each_tag_becomes_the_digest_that_the_registry_serves(registry: tuple[str, dict[str, str]]) -> None:
    prefix, digests = registry
    done = f"    image: other:1@sha256:{'a' * 64}"
    lines = ["    image: classwise:0.1.0-cpu", "  - image: classwise:0.1.0-cuda", done, "    name: classwise:0.1.0-cpu"]
    environment = {**os.environ, "SKOPEO_OPTIONS": "--tls-verify=false"}
    words = [str(SCRIPT), prefix]
    text = "\n".join(lines) + "\n"
    process = subprocess.run(words, input=text, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == [
        f"    image: {prefix}classwise:0.1.0-cpu@{digests['0.1.0-cpu']}",
        f"  - image: {prefix}classwise:0.1.0-cuda@{digests['0.1.0-cuda']}",
        done,
        lines[3],
    ]
    absent = subprocess.run(
        words, input="image: classwise:9\n", env=environment, capture_output=True, text=True, check=False
    )
    assert absent.returncode != 0 and absent.stdout == "" and "manifest unknown" in absent.stderr


def test_without_its_tool_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "cat").symlink_to("/bin/cat")
    environment = {"PATH": str(tmp_path)}
    words = ["/bin/bash", str(SCRIPT), "registry/"]
    process = subprocess.run(words, input="", env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 2 and "expected skopeo" in process.stderr


def test_every_image_that_is_shipped_has_a_line_that_can_be_pinned() -> None:
    lines = [line for path in FOLDER.glob("*.yaml") for line in path.read_text().splitlines() if "image:" in line]
    lines += [line for line in (FOLDER.parent / "compose.yaml").read_text().splitlines() if " image:" in line]
    assert len(lines) > 10
    assert [line for line in lines if len(line.split()) != 2 or ":" not in line.split()[1]] == []
