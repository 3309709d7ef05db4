"""DistributedDataParallel over the backend: the losses are Gloo's, the bits the same everywhere and every time."""

import gc
import hashlib
import itertools

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, OURS, KeptRanks, group, in_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks as here

only_ours = pytest.mark.skipif(not OURS, reason="asks what only Sumpter has")


# --- in the ranks ---


class Branches(nn.Module):
    """Two branches, of which a call uses one, both, or another on each rank."""

    def __init__(self):
        super().__init__()
        self.first, self.left, self.right, self.last = (nn.Linear(20, 20) for _ in range(4))

    def forward(self, x, branches):
        x = self.first(x).relu()
        return self.last(sum(getattr(self, branch)(x) for branch in branches))


def network(kind="mlp"):
    torch.manual_seed(3)
    if kind == "branches":
        return Branches()
    if kind == "convolutions":  # channels_last parameters: buckets of tensors with strides
        return nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(),
                             nn.Linear(8 * 6 * 6, 20)).to(memory_format=torch.channels_last)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 301), nn.Tanh(), nn.Linear(301, 20))


def batch(step, rank, kind="mlp", rows=8):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    shape = (rows, 2, 10, 10) if kind == "convolutions" else (rows, 20)
    return torch.randn(shape, generator=generator), torch.randn(rows, 20, generator=generator)


def digest(model):
    """Of the parameters: the statistics of a batch norm are each rank's own."""
    whole = hashlib.sha256()
    for tensor in model.parameters():
        whole.update(tensor.detach().contiguous().numpy().tobytes())
    return whole.hexdigest()


def step_of(model, optimizer, step, kind="mlp", extra=()):
    inputs, wanted = batch(step, here.RANK, kind)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs, *extra), wanted)
    loss.backward()
    optimizer.step()
    return loss.item()


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


@in_group
def train(kind="mlp", steps=5, **options):
    """Losses and the digest after some steps on a group of its own."""
    model = DistributedDataParallel(network(kind), **options)
    optimizer = optimizer_of(model)
    losses = [step_of(model, optimizer, step, kind) for step in range(steps)]
    return losses, digest(model.module)


def close(losses, others):
    return len(losses) == len(others) and all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) for a, b in zip(losses, others))


def check_with_gloo(ranks, function, *arguments, **kwargs):
    """`function(backend, ...)` gives losses and a digest: the losses are Gloo's, the digests agree."""
    theirs = ranks.run(function, "gloo", *arguments, **kwargs)
    ours = ranks.run(function, BACKEND, *arguments, **kwargs)
    assert len({what for _, what in ours}) == 1, "the ranks' parameters differ"
    for rank, ((found, _), (expected, _)) in enumerate(zip(ours, theirs)):
        assert close(found, expected), f"rank {rank}: {found}, with gloo {expected}"
    return ours


# --- the tests ---


def train_with(backend, kind, options):
    return train(backend, kind, **options)


@pytest.mark.parametrize("view", [True, False], ids=["views", "copies"])
@pytest.mark.parametrize("kind", ["mlp", "convolutions"])
def test_losses_are_those_of_gloo(two, kind, view):
    check_with_gloo(two, train_with, kind, {"gradient_as_bucket_view": view})


def test_static_graph(two):
    check_with_gloo(two, train_with, "mlp", {"static_graph": True}, limit=15)


@in_group
def train_uneven():
    """Rank 0 has three batches, rank 1 six."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.1)
    optimizer = optimizer_of(model)
    losses = []
    with model.join():
        for step in range(3 if here.RANK == 0 else 6):
            losses.append(step_of(model, optimizer, step))
    return losses, digest(model.module)


def test_join_with_uneven_inputs(two):
    ours = check_with_gloo(two, train_uneven)
    assert [len(losses) for losses, _ in ours] == [3, 6]


@in_group
def train_in_parts(parts):
    """Batches of 8 rows, in `parts` micro-batches of which only the last is exchanged."""
    model = DistributedDataParallel(network())
    optimizer = optimizer_of(model)
    losses = []
    for step in range(4):
        inputs, wanted = batch(step, here.RANK)
        optimizer.zero_grad()
        total = 0.0
        for i, (part, target) in enumerate(zip(inputs.chunk(parts), wanted.chunk(parts))):
            with model.no_sync() if i < parts - 1 else torch.enable_grad():
                loss = nn.functional.mse_loss(model(part), target) / parts
                loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses, digest(model.module)


def test_no_sync_equals_one_big_batch(two):
    in_parts = check_with_gloo(two, train_in_parts, 4)
    whole = two.run(train_in_parts, BACKEND, 1)
    for (found, _), (expected, _) in zip(in_parts, whole):
        assert found == pytest.approx(expected, rel=1e-5)


BRANCHES = {
    "one_unused": lambda step, rank: ("left",),
    "differs_by_rank": lambda step, rank: ("left",) if (step + rank) % 2 else ("right",),
    "differs_by_step": lambda step, rank: [("left",), ("right",), ("left", "right")][step % 3],
}


@in_group
def train_branches(which):
    model = DistributedDataParallel(network("branches"), find_unused_parameters=True)
    optimizer = optimizer_of(model)
    losses = [step_of(model, optimizer, step, extra=(BRANCHES[which](step, here.RANK),)) for step in range(6)]
    return losses, digest(model.module)


@pytest.mark.parametrize("which", BRANCHES)
def test_unused_parameters(two, which):
    check_with_gloo(two, train_branches, which)


@in_group
def complex_and_power_sgd():
    """Complex gradients lie in buckets as pairs of real ones; PowerSGD waits for operations in callbacks of others."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 2, dtype=torch.complex64))
    model(torch.full((1, 3), here.RANK + 1.0 + 0j)).real.sum().backward()
    weights = torch.view_as_real(model.module.weight.grad).abs().unique().tolist()
    model = DistributedDataParallel(nn.Linear(50, 50, bias=False))
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    for step in range(20):
        model(torch.full((1, 50), float(here.RANK))).sum().backward()
    return weights, torch.isfinite(model.module.weight.grad).all().item()


def test_complex_gradients_and_power_sgd(two):
    for rank_found in two.run(complex_and_power_sgd, BACKEND, limit=40):
        assert rank_found == ([0.0, 1.5], True)


def test_bits_are_the_same_for_all_bucket_sizes_and_runs(two):
    found = set()
    for options in [{"bucket_cap_mb": 0.001}, {"bucket_cap_mb": 0.1}, {"bucket_cap_mb": 25}, {"bucket_cap_mb": 25},
                    {"bucket_cap_mb": 0.1, "gradient_as_bucket_view": True}]:
        found |= {what for _, what in two.run(train_with, BACKEND, "mlp", options)}
    assert len(found) == 1


@in_group
def statuses(view):
    """After the first steps, after more, and after the model is gone and another has been trained."""
    import sumpter

    found = []
    for _ in range(4):
        model = DistributedDataParallel(network(), gradient_as_bucket_view=view, bucket_cap_mb=0.2)
        optimizer = optimizer_of(model)
        for step in range(12):
            step_of(model, optimizer, step)
            if step in (3, 11):  # all have rebuilt their buckets, or have taken apart the model before
                dist.barrier()
                found.append(sumpter.status())
                dist.barrier()
        del model, optimizer
        gc.collect()
    gradients = sum(parameter.numel() * 4 for parameter in network().parameters())
    return gradients, [(status.buckets, status.bucket_bytes, status.arena_bytes, status.reason) for status in found]


@only_ours
@pytest.mark.parametrize("view", [True, False], ids=["views", "copies"])
def test_buckets_are_in_place_and_give_their_memory_back(two, view):
    for gradients, found in two.run(statuses, BACKEND, view):
        assert [buckets for buckets, *_ in found] == ["in place"] * 8, found
        # Rebuilt buckets replace the first ones: there is one set, not two; and each later model has the room of the first.
        for _, bucket_bytes, _, _ in found:
            assert gradients <= bucket_bytes < 1.5 * gradients + (1 << 16), found
        arena = [arena_bytes for _, _, arena_bytes, _ in found]
        assert arena[1:] == [arena[0]] * 7, arena


@in_group
def counters():
    import sumpter

    model = DistributedDataParallel(network(), bucket_cap_mb=0.2)
    optimizer = optimizer_of(model)
    found = []
    for step in range(6):
        before = sumpter.status()
        step_of(model, optimizer, step)
        after = sumpter.status()
        found.append((after.operations - before.operations, after.staged - before.staged))
    return found


@only_ours
def test_a_step_copies_nothing(two):
    """Once the buckets are rebuilt, none of a step's operations is staged."""
    for found in two.run(counters, BACKEND):
        assert all(operations > 0 for operations, _ in found)
        assert [staged for _, staged in found[2:]] == [0] * 4, found


@in_group
def train_and_show():
    import sumpter

    model = DistributedDataParallel(network())
    optimizer = optimizer_of(model)
    losses = [step_of(model, optimizer, step) for step in range(5)]
    status = sumpter.status()
    return losses, digest(model.module), status.buckets, status.reason, str(status)


@only_ours
@pytest.mark.parametrize("name", ["cpu:{}", "cpu:{},cuda:gloo"])
def test_maps(two, name):
    expected = two.run(train, "gloo")
    found = two.run(train_and_show, name.format(BACKEND))
    assert len({what for _, what, *_ in found}) == 1
    for (losses, _, buckets, reason, _), (wanted, _) in zip(found, expected):
        assert close(losses, wanted)
        assert (buckets, bool(reason)) == ("in place", True)


@only_ours
def test_buckets_are_staged_where_the_user_says_so(two):
    expected = two.run(train, BACKEND)
    with KeptRanks(2, environment={"DDP_DISABLE_COMM_MEM": "1"}) as ranks:
        found = ranks.run(train_and_show, BACKEND)
    for (losses, what, buckets, reason, text), wanted in zip(found, expected):
        assert (losses, what) == wanted
        assert buckets == "staged" and "DDP_DISABLE_COMM_MEM" in reason
        assert "staged" in text and reason in text


def train_and_let_go():
    """The model outlives the group, and a second one is made before it is gone."""
    init_module = network()
    with group():
        model = DistributedDataParallel(init_module, gradient_as_bucket_view=True)
        optimizer = optimizer_of(model)
        step_of(model, optimizer, 0)
    gradients = [parameter.grad.clone() for parameter in init_module.parameters()]
    with group():
        second = DistributedDataParallel(network(), gradient_as_bucket_view=True)
        step_of(second, optimizer_of(second), 0)
        del model
        step_of(second, optimizer_of(second), 1)
    return all(torch.equal(a, b.grad) for a, b in zip(gradients, init_module.parameters()))


@only_ours
def test_a_model_may_outlive_its_group(two):
    for _ in range(5):
        assert two.run(train_and_let_go) == [True, True]


# --- the communication hook ---


@in_group
def hooked(wire, feedback, plan, bucket_cap):
    """Trains; `plan` says after which steps all is saved and loaded into new objects."""
    from sumpter import hooks

    saved = None
    losses = []
    for begin, end in itertools.pairwise([0, *plan]):
        module = network()
        if saved:
            module.load_state_dict(saved[0])
        model = DistributedDataParallel(module, bucket_cap_mb=bucket_cap)
        optimizer = optimizer_of(model)
        state = hooks.CompressState(model.parameters(), wire=wire, error_feedback=feedback)
        if saved:
            optimizer.load_state_dict(saved[1])
            state.load_state_dict(saved[2])
        model.register_comm_hook(state, hooks.compress)
        losses += [step_of(model, optimizer, step) for step in range(begin, end)]
        path = f"{here.DIRECTORY}/saved{here.RANK}"
        torch.save((module.state_dict(), optimizer.state_dict(), state.state_dict()), path)
        saved = torch.load(path, weights_only=False)
    return losses, digest(module)


@only_ours
@pytest.mark.parametrize("feedback", [True, False], ids=["feedback", "plain"])
@pytest.mark.parametrize("wire", ["bf16", "i8"])
def test_compression_continues_bit_for_bit(two, wire, feedback):
    whole = two.run(hooked, BACKEND, wire, feedback, [9], 0.2)
    stopped = two.run(hooked, BACKEND, wire, feedback, [4, 9], 0.2)
    other_buckets = two.run(hooked, BACKEND, wire, feedback, [9], 25)
    assert len({what for _, what in whole + stopped + other_buckets}) == 1
    exact = two.run(train_with, BACKEND, "mlp", {"steps": 9})
    assert {what for _, what in exact} != {what for _, what in whole}  # it does round
    for (losses, _), (expected, _) in zip(whole, exact):
        assert losses == pytest.approx(expected, rel=0.05)
    assert [losses for losses, _ in whole] == [losses for losses, _ in stopped]


# --- other ways to use a group ---


@in_group
def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module = network()
    mesh = init_device_mesh("cpu", (here.SIZE,))
    for layer in (module[0], module[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = optimizer_of(module)
    losses = [step_of(module, optimizer, step) for step in range(3)]
    return losses, digest_of_shards(module)


def digest_of_shards(module):
    whole = hashlib.sha256()
    for tensor in module.state_dict().values():
        whole.update(tensor.full_tensor().numpy().tobytes())
    return whole.hexdigest()


def test_fully_shard(two):
    check_with_gloo(two, sharded)


@pytest.fixture
def two_in_debug():
    with KeptRanks(2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) as ranks:
        yield ranks


@in_group
def debugged():
    model = DistributedDataParallel(network())
    optimizer = optimizer_of(model)
    losses = [step_of(model, optimizer, step) for step in range(5)]
    found = digest(model.module)
    try:
        if here.RANK:
            dist.all_reduce(torch.ones(3))
        else:
            dist.all_reduce(torch.ones(4))
        text = "nothing was raised"
    except RuntimeError as error:
        text = str(error)
    return losses, found, dist.get_debug_level().name, text


@only_ours  # torch 2.13 crashes here with gloo
def test_debug_level_detail(two, two_in_debug):
    """torch wraps the group: as before, and torch's own comparison of what ranks call comes first."""
    expected = two.run(train, BACKEND)
    for (losses, what, level, text), (wanted, digest_wanted) in zip(two_in_debug.run(debugged, BACKEND), expected):
        assert (level, losses, what) == ("DETAIL", wanted, digest_wanted)
        assert "mismatch" in text, text


@in_group
def train_both():
    """Two models in turns, one forward and backward inside the other's step."""
    models = [DistributedDataParallel(network(), bucket_cap_mb=0.2), DistributedDataParallel(network("branches"))]
    optimizers = [optimizer_of(model) for model in models]
    for step in range(3):
        inputs, wanted = batch(step, here.RANK)
        for optimizer in optimizers:
            optimizer.zero_grad()
        first = nn.functional.mse_loss(models[0](inputs), wanted)
        second = nn.functional.mse_loss(models[1](inputs, ("left", "right")), wanted)
        (first + second).backward()
        for optimizer in optimizers:
            optimizer.step()
    return [digest(model.module) for model in models]


def test_two_models_in_one_backward(two):
    first, second = two.run(train_both, BACKEND)
    assert first == second
