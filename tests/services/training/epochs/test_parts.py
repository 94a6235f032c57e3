"""Optimiser, batches, splits, selection and evaluation, each against what it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from services.training.averaging import Ema, FairEma, averaged
from services.training.counts import ClassCounts, EpochRecord
from services.training.data.batches import Epoch, Images, cropped
from services.training.data.held_out import holdout
from services.training.epochs.adamw import AdamW
from services.training.epochs.best_epoch import best_epoch, is_out_of_patience
from services.training.epochs.evaluation import Tally, correct, evaluate, held_losses
from services.training.epochs.sgd import Sgd
from services.training.epochs.smoothing import recompute_batch_norm
from services.training.methods.method import Method
from services.training.step import Batch, Budget

CPU = torch.device("cpu")


def both_step(nets: list[nn.Linear], ours: Sgd | AdamW, theirs: torch.optim.Optimizer, step: int) -> None:
    """A step of each on the same samples, at a rate of 0.1."""
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    for net in nets:
        net.zero_grad()
        net(x).square().sum().backward()
    ours.step(0.1)
    theirs.step()


def assert_equal_weights(nets: list[nn.Linear]) -> None:
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert a.detach().numpy() == pytest.approx(b.detach().numpy(), rel=1e-12)


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "nesterov"),
    [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.05, False), (0.9, 0.05, True)],
)
def test_sgd_is_that_of_torch(momentum: float, weight_decay: float, nesterov: bool) -> None:
    nets = [nn.Linear(3, 2).double(), nn.Linear(3, 2).double()]
    nets[1].load_state_dict(nets[0].state_dict())
    ours = Sgd(nets[0], momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
    theirs = torch.optim.SGD(
        nets[1].parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov
    )
    for step in range(5):
        both_step(nets, ours, theirs, step)
    assert_equal_weights(nets)


def test_adamw_is_that_of_torch_and_goes_on_from_its_state() -> None:
    nets = [nn.Linear(3, 2).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours = AdamW(nets[0], momentum=0.8, weight_decay=0.05)
    theirs = torch.optim.AdamW(nets[1].parameters(), lr=0.1, betas=(0.8, 0.999), weight_decay=0.05)
    for step in range(6):
        if step == 3:
            state = {name: value.clone() for name, value in ours.state().items()}
            ours = AdamW(nets[0], momentum=0.8, weight_decay=0.05)
            ours.load(state)
        both_step(nets, ours, theirs, step)
    assert_equal_weights(nets)


def test_batch_norm_is_that_of_torchs_own_pass_over_the_batches() -> None:
    """As `torch.optim.swa_utils.update_bn`, which passes in training mode: without dropout the same."""
    torch.default_generator.manual_seed(1)
    nets = [nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.BatchNorm2d(3)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    batches = list(epoch(images(), 7))
    recompute_batch_norm(nets[0].train(), nets[0], batches)
    torch.optim.swa_utils.update_bn([x for x, _ in batches], nets[1].train())
    for (name, ours), theirs in zip(nets[0].state_dict().items(), nets[1].state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs), name
    norm = nets[0][1]
    assert isinstance(norm, nn.BatchNorm2d) and norm.momentum == 0.1 and nets[0].training
    recompute_batch_norm(nets[0], nets[0], batches[:1])
    assert not torch.allclose(nets[0].state_dict()["1.running_var"], nets[1].state_dict()["1.running_var"])


def test_sgd_passes_over_parameters_without_a_gradient() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = net[1].weight.detach().clone()
    sgd = Sgd(net, momentum=0.9, weight_decay=1.0, nesterov=False)
    net[0](torch.ones(1, 2)).sum().backward()
    sgd.step(0.1)
    assert torch.equal(net[1].weight, before) and set(sgd.state()) == {"0.weight", "0.bias"}


def images(count: int = 23) -> Images:
    x = np.arange(count * 16, dtype=np.int64).reshape(count, 1, 4, 4) % 256
    return Images(x.astype(np.uint8), np.arange(count) % 3, CPU)


def epoch(data: Images, batch: int, *, seed: int = 0, number: int = 0, crop: int = 0, flip: bool = False) -> Epoch:
    return Epoch(data, batch=batch, seed=seed, epoch=number, crop=crop, flip=flip)


@settings(max_examples=40, deadline=None)
@given(batch=st.integers(1, 30), seed=st.integers(0, 5), number=st.integers(0, 5))
def test_an_epoch_is_a_permutation_in_batches(batch: int, seed: int, number: int) -> None:
    slices = epoch(images(), batch, seed=seed, number=number).slices()
    assert sorted(np.concatenate(slices).tolist()) == list(range(23))
    assert all(len(rows) == batch for rows in slices[:-1]) or len(slices) == 1
    assert batch == 1 or len(slices[-1]) >= 2 or len(slices) == 1


def test_the_order_changes_with_seed_and_epoch_and_with_nothing_else() -> None:
    orders = [
        np.concatenate(epoch(images(), 8, seed=s, number=e).slices()).tolist() for s, e in ((0, 0), (0, 1), (1, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert orders[0] == np.concatenate(epoch(images(), 5).slices()).tolist()


def test_augmentation_does_not_change_with_the_batch_size() -> None:
    runs = [torch.cat([x for x, _ in epoch(images(), batch, crop=1, flip=True)]) for batch in (4, 11)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], torch.cat([x for x, _ in epoch(images(), 4)]))


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    x = torch.rand(5, 3, 6, 4)
    down, right = np.array([0, 1, 2, 3, 4]), np.array([4, 3, 2, 1, 0])
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    want = np.stack([padded[i, :, d : d + 6, r : r + 4] for i, (d, r) in enumerate(zip(down, right, strict=True))])
    assert np.array_equal(cropped(x, down, right, padding=2).numpy(), want)


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=6), share=st.floats(0.05, 0.95), seed=st.integers(0, 9))
def test_a_holdout_is_stratified_and_complete(counts: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    kept, held = holdout(labels, share=share, seed=seed)
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(len(labels)))
    for k, n in enumerate(counts):
        taken = int(np.sum(labels[held] == k))
        assert taken <= n - 1 and abs(taken - share * n) <= 1
    again = holdout(labels, share=share, seed=seed)
    assert np.array_equal(again[1], held)


def record(number: int, clean: tuple[int, ...], robust: tuple[int, ...]) -> EpochRecord:
    counts = ClassCounts((10,) * len(clean), clean, robust, (0.0,) * len(clean))
    return EpochRecord(number, 0.1, 20, 1.0, counts, counts, 1.0)


def test_selection_by_clean_robust_and_worst_class() -> None:
    records = [record(0, (10, 9), (8, 1)), record(1, (9, 9), (5, 3)), record(2, (9, 9), (5, 3))]
    assert [best_epoch(records, by) for by in ("clean", "robust", "worst-class", "last")] == [0, 0, 1, 2]
    assert best_epoch([], "robust") is None
    assert is_out_of_patience(records, "robust", 2) and not is_out_of_patience(records, "worst-class", 2)
    assert not is_out_of_patience(records, "robust", None)


def test_a_class_without_held_out_samples_is_not_the_worst() -> None:
    assert ClassCounts((4, 0), (4, 0), (2, 0)).accuracy("worst-class") == 0.5
    assert ClassCounts((4, 0)).accuracy("robust") is None


def test_nan_logits_are_never_correct() -> None:
    logits = torch.tensor([[float("nan"), 0.0], [2.0, 1.0], [float("inf"), 0.0]])
    assert correct(logits, torch.tensor([0, 0, 0])).tolist() == [False, True, False]


def test_evaluation_counts_like_a_loop() -> None:
    torch.default_generator.manual_seed(3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    data = images()
    out = evaluate(net, data, 3, attack=Budget(epsilon=0.0, random_start=False), batch=7, seed=0)
    with torch.no_grad():
        right = (net(data.rows(np.arange(23))).argmax(1) == data.labels).numpy()
    want = tuple(int(right[data.labels.numpy() == k].sum()) for k in range(3))
    assert out.total == (8, 8, 7) and out.clean == want and out.robust == want
    strong = evaluate(net, data, 3, attack=Budget(epsilon=1.0, step=0.5), batch=7, seed=0)
    assert strong.clean == want and strong.robust is not None and sum(strong.robust) <= sum(want)


@pytest.mark.parametrize("decay", [0.0, 0.85])
def test_a_moving_average_has_its_closed_form(decay: float) -> None:
    epochs = [
        {"w": torch.randn(3, 2, generator=torch.Generator().manual_seed(t)), "steps": torch.tensor(t)} for t in range(5)
    ]
    average: dict[str, torch.Tensor] = {}
    for weights in epochs:
        average = averaged(average, weights, decay)
    shares = np.array([decay**4, *((1 - decay) * decay ** (4 - t) for t in range(1, 5))])
    want = sum(share * weights["w"].numpy() for share, weights in zip(shares, epochs, strict=True))
    assert average["w"].numpy() == pytest.approx(want, abs=1e-6)
    assert average["steps"] == 4 and average["steps"].dtype == torch.int64


def test_averaging_begins_after_its_share_of_the_epochs() -> None:
    assert [Ema().is_due(epoch, 200) for epoch in (0, 49, 50, 199)] == [False, False, True, True]
    assert [Ema(start=1).is_due(epoch, 3) for epoch in range(3)] == [False, False, True]


def test_an_epoch_is_fair_from_the_threshold_on() -> None:
    counts = ClassCounts((10, 5, 0), (10, 5, 0), (9, 1, 0), (0.0,) * 3)
    assert FairEma().is_fair(counts) and not FairEma(threshold=0.21).is_fair(counts)
    assert not FairEma(threshold=0).is_fair(ClassCounts((0,), (0,), (0,)))


def test_probabilities_of_perturbed_images_are_summed_by_class() -> None:
    tally, rng = Tally(3, confidence=True), np.random.default_rng(0)
    logits, labels = rng.normal(size=(7, 3)), np.array([0, 2, 2, 0, 1, 1, 2])
    for part in (slice(0, 4), slice(4, 7)):
        tally.step(torch.tensor(labels[part]), None, torch.tensor(logits[part]))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    want = np.concatenate([shares[labels == k].sum(0) for k in range(3)])
    assert tally.counts().confidence == pytest.approx(tuple(want))


class Judging(Method):
    """A method whose held-out loss is the first logit plus noise of the batch's generator."""

    name: str = "judging"

    def held_losses(self, network: nn.Module, batch: Batch) -> torch.Tensor:
        noise = torch.empty(len(batch.labels)).uniform_(generator=batch.generator)
        return network(batch.images)[:, 0] + noise * 0.1


def test_held_out_losses_are_summed_by_class_in_evaluation_mode() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Dropout(0.9)).train()
    data = images()
    sums = held_losses(net, Judging(), data, 3, batch=10, seed=0)
    assert sums is not None and net.training
    logits = net.eval()(data.rows(np.arange(23)))[:, 0].detach().numpy()
    plain = np.array([logits[np.arange(23) % 3 == k].sum() for k in range(3)])
    assert (plain < sums).all() and (sums < plain + 0.8).all()
    assert sums == held_losses(net, Judging(), data, 3, batch=10, seed=0)
    assert sums != held_losses(net, Judging(), data, 3, batch=10, seed=1)
    assert held_losses(net, Method(name="none"), data, 3, batch=10, seed=0) is None
