from collections.abc import Callable
from typing import overload

from torch import Tensor

torch_version: str
cuda_archs: str

def cuda_status() -> tuple[bool, int, str]: ...

class CsrTensors:
    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int) -> None: ...

class GcnTape:
    sparse_inputs: CsrTensors
    sparse_inputs_t: CsrTensors
    dense_inputs: Tensor
    first_block: CsrTensors
    first_block_t: CsrTensors
    blocks: list[CsrTensors]
    blocks_t: list[CsrTensors]
    aggregated: list[Tensor]
    weights: list[Tensor]
    masks: list[Tensor]
    deltas: list[Tensor]
    probabilities: Tensor
    loss_weights: Tensor
    def __init__(self) -> None: ...

def propagate_out(a: CsrTensors, x: Tensor, out: Tensor) -> None: ...
def neighbour_means_out(a: CsrTensors, x: Tensor, out: Tensor) -> None: ...

class TileTensors: ...

def propagate_tiles_out(a: TileTensors, x: Tensor, out: Tensor) -> None: ...
def cut_tiles(a: CsrTensors, tile_rows: int) -> TileTensors: ...
def node_gradients_out(
    entry_ptr: Tensor, nodes: Tensor, delta: Tensor, inputs: Tensor | CsrTensors, out: Tensor
) -> None: ...
def jackknife_interval(scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float) -> tuple[Tensor, Tensor]: ...
def eice_term(
    logits: Tensor,
    change: Tensor,
    own_logits: Tensor,
    own_change: Tensor,
    targets: Tensor,
    q_lower: float,
    q_upper: float,
    confidence: bool,
    scores: bool,
    residuals: bool,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def loo_messages_out(
    inputs: Tensor | CsrTensors,
    z: Tensor,
    first: Tensor,
    second: Tensor,
    contrast: Tensor,
    mix: Tensor | None,
    out: Tensor,
) -> None: ...
@overload
def loo_messages_out(
    inputs: Tensor | CsrTensors,
    z: Tensor,
    entry_ptr: Tensor,
    nodes: Tensor,
    delta: Tensor,
    factors: CsrTensors,
    seen: Tensor | None,
    second: Tensor,
    contrast: Tensor,
    mix: Tensor | None,
    out: Tensor,
) -> None: ...
def masked_gram_out(a: CsrTensors, panels: Tensor, mask: Tensor, scaled: Tensor, out: Tensor) -> None: ...
def message_interval(
    a: CsrTensors,
    messages: Tensor,
    logits: Tensor,
    shift: Tensor,
    residuals: Tensor,
    q_lower: float,
    q_upper: float,
    scale: float,
    bias: float,
) -> Tensor: ...

class Factor:
    @overload
    def __init__(self, dense: Tensor) -> None: ...
    @overload
    def __init__(self, rows: CsrTensors) -> None: ...
    @overload
    def __init__(self, tiles: TileTensors) -> None: ...

class NetworkField:
    inputs: list[Factor]
    inputs_t: list[Factor]
    blocks: list[Factor]
    blocks_t: list[Factor]
    widths: list[tuple[int, int]]
    def __init__(self) -> None: ...

def network_products(field: NetworkField, parameters: Tensor) -> Tensor: ...
def network_loss(
    field: NetworkField,
    parameters: Tensor,
    targets: Tensor,
    weights: Tensor,
    factors: list[Tensor],
    scale: float,
    composed: bool,
    gradient: Tensor,
) -> Tensor: ...
def dropout_factors(out: Tensor, probability: float, key: int) -> None: ...
def adam_step(
    theta: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    weight_decay: float,
    beta1: float,
    beta2: float,
    length: float,
    scale: float,
    epsilon: float,
) -> None: ...
def confidence_bins(
    probabilities: Tensor, labels: Tensor, weights: Tensor | None, edges: Tensor, slack: float
) -> tuple[Tensor, int]: ...
def hessian_product(tape: GcnTape, vectors: Tensor, curvature: str, damping: float) -> Tensor: ...
def move_logits(tape: GcnTape, vectors: Tensor) -> Tensor: ...
def solve_inverse_hvp(
    tape: GcnTape,
    rhs: Tensor,
    curvature: str,
    damping: float,
    tolerance: float,
    max_iterations: int,
    check_every: int,
    precondition: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def block_cg(
    product: Callable[[Tensor], Tensor],
    rhs: Tensor,
    tolerance: float,
    max_iterations: int,
    check_every: int,
    precondition: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
