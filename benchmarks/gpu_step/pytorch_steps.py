"""The same training step in several forms of PyTorch; importing this module imports torch.

All sparse rows have the same number of values, so that a batch has a fixed shape, which a CUDA
graph needs: two arrays [B, stored], the direct input of EmbeddingBag.
"""

import gc
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.gpu_step.problem import SyntheticProblem
from hogbatch.config.backbone_layers import Convolution, Pooling, Recurrent
from hogbatch.config.optimizers import OPTIMIZERS

WARM_STEPS = 3  # before a step is captured
KINDS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
NONLINEAR = {"relu": torch.relu, "sigmoid": torch.sigmoid}


class Form(NamedTuple):
    """How the step runs."""

    mode: str = ""  # mode of torch.compile
    captured: bool = False  # the whole step, optimizer included, as one CUDA graph


FORMS = {
    "eager": Form(),
    "graph": Form(captured=True),
    "compiled": Form(mode="reduce-overhead"),
    "autotuned": Form(mode="max-autotune-no-cudagraphs", captured=True),
}


def takes(form: Form, problem: SyntheticProblem) -> bool:
    """Whether `form` applies to the rows: torch.compile does not generate sparse kernels."""
    return not (form.mode and problem.examples.sparse)


def objection(device: str) -> str | None:
    """Why PyTorch cannot use that GPU, or None."""
    if device == "host" or int(device) < torch.cuda.device_count():
        return None
    return f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices"


def versions() -> dict[str, str]:
    """Versions of PyTorch and of the CUDA it was built with, if any."""
    built = {"torch's CUDA": torch.version.cuda} if torch.version.cuda else {}
    return {"torch": torch.__version__, **built}


def prepare(device: str, precision: str) -> torch.device:
    """The device with a stream of its own, and matrix products set to that precision."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if device == "host":
        return torch.device("cpu")
    torch.cuda.set_device(int(device))
    torch.cuda.set_stream(torch.cuda.Stream())
    return torch.device("cuda", int(device))


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free(compiled: bool) -> None:
    """Free unreferenced memory; `compiled`: also discard the compiled code."""
    if compiled:
        torch.compiler.reset()
        gc.collect()
    torch.cuda.empty_cache()


class Resident:
    """All rows on the device: x one array [N, F], or two [N, stored] of features and values."""

    def __init__(self, problem: SyntheticProblem, device: torch.device) -> None:
        inputs, labels = problem.examples.inputs, problem.examples.labels
        arrays = [inputs.dense]
        if problem.examples.sparse:
            shape = -1, problem.shape.stored
            arrays = [inputs.indices.reshape(shape), inputs.values.reshape(shape)]
        self.device = device
        self.x = [torch.from_numpy(array).to(device) for array in arrays]
        self.y = torch.from_numpy(labels.values).long().to(device)
        self.order = torch.from_numpy(problem.order).to(device)


class Sparse(nn.Module):
    """`linear` for sparse rows, always in float32 like hogbatch's."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().T.contiguous())
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, indices: Tensor, values: Tensor) -> Tensor:
        """[B, H] of features and values [B, stored]."""
        with torch.autocast(values.device.type, enabled=False):
            bags = F.embedding_bag(indices, self.weight, per_sample_weights=values, mode="sum")
            return bags + self.bias


class BatchLoss(nn.Module):
    """The mean loss of the batch whose row numbers are in `rows`.

    The data set is kept in buffers, because torch.compile treats their addresses as constant.
    """

    def __init__(self, problem: SyntheticProblem, resident: Resident, batch: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(linear_layers(problem))
        self.below = nn.ModuleList(layers_below(problem))
        if problem.examples.sparse:
            self.layers[0] = Sparse(self.layers[0])
        self.activate = NONLINEAR.get(problem.network.layers[0].activation, torch.relu)
        self.bfloat16 = False
        for number, array in enumerate(resident.x):
            self.register_buffer(f"x{number}", array)
        self.register_buffer("y", resident.y)
        self.register_buffer("rows", torch.zeros(batch, dtype=torch.int64))

    def forward(self) -> Tensor:
        """A scalar."""
        first, *others = self.layers
        whole = (self.x0, self.x1) if isinstance(first, Sparse) else (self.x0,)
        kind = self.rows.device.type
        # Casting the weights is part of the step: a cache of the casts must not outlive it.
        with torch.autocast(kind, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
            given = [array.index_select(0, self.rows) for array in whole]
            for layer in self.below:
                given = [layer(*given)]
            x = first(*given)
            for layer in others:
                x = layer(self.activate(x))
            return F.cross_entropy(x, self.y.index_select(0, self.rows))


class Flat(nn.Module):
    """Pictures [B, H, W, C] or sequences [B, T, F] from rows, and rows from their outputs."""

    def __init__(self, shape: tuple[int, ...], layers: nn.Sequential) -> None:
        super().__init__()
        self.shape, self.layers = shape, layers

    def forward(self, rows: Tensor) -> Tensor:
        """[B, n] of [B, F]."""
        if isinstance(self.layers[0], nn.LSTM):
            return self.layers[0](rows.reshape(-1, *self.shape[1:]))[0][:, -1]
        x = rows.reshape(-1, *self.shape).permute(0, 3, 1, 2)  # channels last
        return self.layers(x).permute(0, 2, 3, 1).flatten(1)


def layers_below(problem: SyntheticProblem) -> list[Flat]:
    """The layers below the dense ones, with their initial parameters."""
    backbone, start, layers = problem.network.backbone, problem.start, list[nn.Module]()
    if backbone is None:
        return []
    found = problem.network.from_stored(start)
    for number, layer in enumerate(backbone.layers):
        named = {name: found[f"backbone.{number}.{name}"] for name in layer.tensors()}
        given = {name: torch.from_numpy(np.ascontiguousarray(a.T)) for name, a in named.items()}
        with torch.no_grad():
            if isinstance(layer, Convolution):
                sizes = layer.inputs[2], layer.filters, (layer.height, layer.width)
                conv = nn.Conv2d(*sizes, padding="same")
                conv.weight.copy_(given["weight"].permute(0, 1, 3, 2))
                conv.bias.copy_(given["bias"])
                layers += [conv.to(memory_format=torch.channels_last), nn.ReLU()]
            elif isinstance(layer, Pooling):
                layers.append(nn.MaxPool2d((layer.height, layer.width)))
            elif isinstance(layer, Recurrent):
                lstm = nn.LSTM(layer.inputs[2], layer.units, batch_first=True)
                lstm.weight_ih_l0.copy_(given["weight"])
                lstm.weight_hh_l0.copy_(given["recurrent"])
                lstm.bias_ih_l0.copy_(given["bias"])
                lstm.bias_ih_l0[layer.units : 2 * layer.units] += 1  # as hogbatch's forget gate
                lstm.bias_hh_l0.zero_().requires_grad_(False)  # one bias is trained
                layers.append(lstm)
    return [Flat(backbone.inputs, nn.Sequential(*layers))]


def linear_layers(problem: SyntheticProblem) -> list[nn.Linear]:
    """The layers with their initial parameters."""
    start, layers = problem.network.from_stored(problem.start), []
    for number, layer in enumerate(problem.network.layers):
        layers.append(nn.Linear(layer.fan_in, layer.width))
        weight, bias = (start[f"layers.{number}.{name}"] for name in ("weight", "bias"))
        with torch.no_grad():
            layers[-1].weight.copy_(torch.from_numpy(weight.T))
            layers[-1].bias.copy_(torch.from_numpy(bias))
    return layers


def optimizer_form(name: str, device: torch.device) -> str:
    """The fastest form of the optimizer available on the device: fused, or else foreach."""
    cell = torch.zeros(1, device=device, requires_grad=True)
    cell.grad = torch.zeros_like(cell)
    try:
        KINDS[name]([cell], fused=True).step()
    except RuntimeError:  # the form is not available; NotImplementedError is a RuntimeError
        return "foreach"
    return "fused"


class TorchSteps:
    """Training steps on batches of B rows, from the initial parameters on.

    A captured step runs a few times before it is captured, as CUDA graphs require.
    """

    def __init__(
        self,
        resident: Resident,
        problem: SyntheticProblem,
        batch: int,
        precision: str,
        optimizer: str,
        form: Form,
    ) -> None:
        self._resident, self._batch = resident, batch
        self._module = BatchLoss(problem, resident, batch).to(resident.device)
        self._module.bfloat16 = precision == "bfloat16"
        self._run: Any = self._module
        if form.mode:
            self._run = torch.compile(self._module, mode=form.mode, dynamic=False)
        self._mode = form.mode
        options = {optimizer_form(optimizer, resident.device): True}
        if optimizer == "adagrad":
            options["eps"] = OPTIMIZERS["adagrad"].epsilon
        rate = problem.rate(optimizer)
        trained = [each for each in self._module.parameters() if each.requires_grad]
        self._optimizer = KINDS[optimizer](trained, lr=rate, **options)
        self._left = WARM_STEPS if form.captured and resident.device.type == "cuda" else None
        self._graph: Any = None

    def step(self, start: int) -> None:
        self._module.rows.copy_(self._resident.order[start : start + self._batch])
        if self._left == 0 and self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._train()
        if self._graph is not None:
            self._graph.replay()
            return
        self._train()
        if self._left is not None:
            self._left -= 1

    def _train(self) -> None:
        if self._mode:
            torch.compiler.cudagraph_mark_step_begin()
        self._optimizer.zero_grad()
        loss = self._run()
        loss.backward()
        self._optimizer.step()
        # The graph of the loss must not stay alive: a capture would see the stream it ran on.
        self._loss = loss.detach()

    def loss(self) -> float:
        return float(self._loss)

    def synchronize(self) -> None:
        synchronize(self._resident.device)


class TorchSquareProduct:
    """One large square product; in bfloat16 the arrays are bfloat16 too."""

    def __init__(self, device: torch.device, side: int, precision: str) -> None:
        kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._a, self._b = (torch.randn(side, side, dtype=kind, device=device) for _ in "ab")
        self._out = torch.empty_like(self._a)

    def step(self, start: int) -> None:
        torch.mm(self._a, self._b, out=self._out)

    def synchronize(self) -> None:
        synchronize(self._out.device)
