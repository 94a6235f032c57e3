"""The list of the hardest samples, from the scores of a real audit with a wrong label in it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from tracking.bundle.reasons.hardest import read_hardest
from tracking.bundle.scores import read_kept_scores
from tracking.report.report import write_report


def test_a_wrong_label_heads_the_list_with_its_picture_and_what_the_models_say(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    source = open_samples(SampleSpec("sklearn:digits?split=test", per_class=12))
    labels, images = source.labels.copy(), source.images(0, len(source))
    labels[7] = (labels[7] + 5) % 10
    np.savez(tmp_path / "s.npz", images=(images * 255).astype(np.uint8).transpose(0, 2, 3, 1), labels=labels)
    data = {**digits_fleet, "samples": {"uri": f"npz:{tmp_path / 's.npz'}"}}
    data["models"] = [model for model in data["models"] if model["name"] != "weak"]
    done = run_audit(
        validate_fleet({**data, "measures": ["clean", {"name": "minimal", "attacks": ["deepfool"]}]}), Quiet()
    )
    table = read_hardest(done.folder)
    assert table["id"][0] == 7 and table["wrong"][0] == table["votes"][0] == table["models"][0] == 2
    assert table["consensus"][0] == source.labels[7] and table["label"][0] == labels[7]
    shown = np.asarray(Image.open(io.BytesIO(table["picture"][0]))).astype(float) / 255
    assert np.abs(shown - images[7, 0]).max() < 0.01
    scores = [read_kept_scores(done.folder, place, model.spec) for place, model in enumerate(done.result.models)]
    right = np.flatnonzero(table["wrong"] == 0)
    for row in right[:5].tolist():
        at = int(np.flatnonzero(scores[0]["id"] == table["id"][row])[0])
        assert np.isclose(table["nearest"][row], min(each["minimal/l2"][at] for each in scores))
    page = Path(write_report(done.result, done.folder)).read_text()
    assert "Samples that most models fail" in page and "never a correction" in page
    quiet = run_audit(validate_fleet({**data, "measures": ["clean"], "gallery": "none"}), Quiet())
    assert not any(read_hardest(quiet.folder)["picture"])
