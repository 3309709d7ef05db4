"""The hook for compressed gradients: its arithmetic on one rank, and a state that goes on where it was saved."""

import io

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture
def hooks(extension):
    dist.init_process_group("sumpter", store=dist.HashStore(), rank=0, world_size=1)
    yield extension.hooks
    dist.destroy_process_group()


GRADIENTS = torch.tensor([1.00390625, -0.3333333, 3.1415927, 1e-3, 0.0])


class Given(torch.nn.Module):
    """Parameters whose gradients are what the input says."""

    def __init__(self, count=2):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(5) for _ in range(count))

    def forward(self, gradients):
        return sum((weight * gradient).sum() for weight, gradient in zip(self.weights, gradients))


def wrapped(hooks, count=2, **options):
    model = Given(count)
    state = hooks.CompressState(model.parameters(), **options)
    # A bucket a parameter, and in the first step another one than later.
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-5, gradient_as_bucket_view=True)
    ddp.register_comm_hook(state, hooks.compress)
    return model, ddp, state


def gradients_of(model, ddp, given):
    model.zero_grad()
    ddp(given).backward()
    return [weight.grad.clone() for weight in model.weights]


def rounded(values):
    return values.to(torch.bfloat16).float()


def test_one_rank_with_error_feedback(hooks):
    model, ddp, state = wrapped(hooks)
    error = torch.zeros(5)
    for step in range(4):
        given = GRADIENTS * (step + 1)
        wanted = rounded(given + error)
        error = given + error - wanted
        for gradient in gradients_of(model, ddp, [given, given]):
            assert torch.equal(gradient, wanted)
    saved = state.state_dict()
    assert sorted(saved["errors"]) == [0, 1]
    assert torch.equal(saved["errors"][0], error) and torch.equal(saved["errors"][1], error)
    assert torch.equal(saved["sum_errors"][0], torch.zeros(5))  # what is rounded already stays as it is


def test_one_rank_without_error_feedback(hooks):
    model, ddp, state = wrapped(hooks, error_feedback=False)
    for _ in range(2):
        given = [GRADIENTS, GRADIENTS * 3]
        for gradient, exact in zip(gradients_of(model, ddp, given), given):
            assert torch.equal(gradient, rounded(exact))
    assert state.state_dict() == {"wire": "bf16", "error_feedback": False, "errors": {}, "sum_errors": {}}


@pytest.mark.parametrize("wire", ["bf16", "f16", "i8"])
def test_a_saved_state_goes_on(hooks, wire):
    def given(step):
        return [GRADIENTS * (step + 1), GRADIENTS.flip(0) - step, torch.full((5,), 0.1 * step)]

    model, ddp, state = wrapped(hooks, count=3, wire=wire)
    for step in range(3):
        gradients_of(model, ddp, given(step))
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    wanted = [gradients_of(model, ddp, given(step)) for step in range(3, 6)]

    file.seek(0)
    model, ddp, state = wrapped(hooks, count=3, wire=wire)
    state.load_state_dict(torch.load(file, weights_only=True))
    for step in range(3, 6):
        for gradient, expected in zip(gradients_of(model, ddp, given(step)), wanted[step - 3]):
            assert torch.equal(gradient, expected)


def test_what_is_loaded_is_a_copy(hooks):
    state = hooks.CompressState([torch.zeros(5)])
    errors = {0: torch.ones(5)}
    state.load_state_dict({"wire": "bf16", "error_feedback": True, "errors": errors, "sum_errors": {}})
    errors[0].fill_(7)
    assert torch.equal(state.state_dict()["errors"][0], torch.ones(5))


GOOD = {"wire": "bf16", "error_feedback": True, "errors": {0: torch.ones(5)}, "sum_errors": {0: torch.ones(5)}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wire": "i8"}, "the state to load has wire='i8', and this one was made with 'bf16'"),
        ({"error_feedback": False}, "the state to load has error_feedback=False, and this one was made with True"),
        ({"errors": {1: torch.ones(5)}}, "errors[1] in the state to load, and the model has 1 parameters"),
        (
            {"sum_errors": {0: torch.ones(4)}},
            "sum_errors[0] in the state to load is torch.float32 of shape (4,), and its parameter needs torch.float32 of shape (5,)",
        ),
        (
            {"errors": {0: torch.ones(5, dtype=torch.float64)}},
            "errors[0] in the state to load is torch.float64 of shape (5,), and its parameter needs torch.float32 of shape (5,)",
        ),
    ],
)
def test_a_state_of_another_model_or_wire_is_refused_whole(hooks, change, message):
    state = hooks.CompressState([torch.zeros(5)])
    state.load_state_dict(GOOD)
    with pytest.raises(ValueError) as raised:
        state.load_state_dict({**GOOD, "errors": {0: torch.zeros(5)}, **change})
    assert str(raised.value) == f"sumpter.hooks: {message}"
    assert torch.equal(state.state_dict()["errors"][0], torch.ones(5))


def test_a_state_that_lacks_a_key(hooks):
    with pytest.raises(ValueError, match="^sumpter.hooks: the state to load has no 'sum_errors'$"):
        hooks.CompressState([torch.zeros(5)]).load_state_dict({k: v for k, v in GOOD.items() if k != "sum_errors"})


def test_wrong_requests(hooks):
    with pytest.raises(ValueError, match="^sumpter.hooks: wire is one of bf16, f16, i8, found 'f32'$"):
        hooks.CompressState([torch.zeros(5)], wire="f32")
    with pytest.raises(ValueError, match="^sumpter.hooks: CompressState was given no parameters"):
        hooks.CompressState(iter(()))


def test_parameters_that_the_state_does_not_know(hooks):
    model = Given()
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(hooks.CompressState([torch.zeros(5)]), hooks.compress)
    with pytest.raises(Exception, match="a gradient of shape \\(5,\\) belongs to no parameter that CompressState was given"):
        ddp([GRADIENTS, GRADIENTS]).backward()


def test_gradients_of_another_type(hooks):
    model = Given().double()
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(hooks.CompressState(model.parameters()), hooks.compress)
    with pytest.raises(Exception, match="compress takes float32 gradients, found torch.float64"):
        ddp([GRADIENTS.double(), GRADIENTS.double()]).backward()
