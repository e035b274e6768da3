"""Files of tensors in the safetensors format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import save_file
from torch import Tensor


def write_tensors(tensors: Mapping[str, Tensor], path: Path, facts: Mapping[str, str]) -> None:
    """Writes tensors and texts to a file that everybody may read.

    `safetensors.torch.save_file` makes ctypes define a type for each size of a tensor in bytes. These types are never
    freed: about 30 KiB per run in a process that trains and saves many. Writing NumPy arrays makes no types.

    Args:
        tensors: of types that NumPy has, thus not bfloat16; they are copied, so they may share memory.
        path: of the file.
        facts: the texts. With more than one entry, safetensors writes them in random order.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}
    try:
        save_file(arrays, str(path), dict(facts))
    except SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(0o644)  # safetensors leaves it to its owner alone
