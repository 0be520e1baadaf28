# SPDX-License-Identifier: MIT
"""vLLM: --load-format strait, registered through vLLM's plugins. Tensors of the model's files arrive on the GPU one by one."""
import copy
import threading
from typing import Any, Callable, Iterator, List, Optional, Tuple

from ._files import iter_tensors

_lock = threading.Lock()


def _filter(expert_ids: Any) -> Optional[Callable[[str], bool]]:
    """Which tensors a rank of an expert-parallel model loads; None: all."""
    if expert_ids is None:
        return None
    try:
        from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
    except ImportError:
        return None  # the model itself drops what it does not have
    return lambda name: not should_skip_weight(name, expert_ids)


def weights(files: List[str], *args: Any, local_expert_ids: Any = None, **options: Any) -> Iterator[Tuple[str, Any]]:
    """In place of vLLM's safetensors_weights_iterator()."""
    import torch
    device = f'cuda:{torch.cuda.current_device()}' if torch.cuda.is_available() else 'cpu'
    return iter_tensors(sorted(files), device, framework='pt', wanted=_filter(local_expert_ids))


def _loader() -> Any:
    from vllm.model_executor.model_loader import default_loader

    class StraitModelLoader(default_loader.DefaultModelLoader):  # type: ignore[misc,name-defined]
        """The default loader, with the weights of safetensors files read into the GPU's memory."""

        def __init__(self, load_config: Any) -> None:
            # The default loader looks for files by format; "strait" is the same files.
            known = copy.copy(load_config)
            known.load_format = 'safetensors'
            super().__init__(known)

        def _get_weights_iterator(self, source: Any) -> Any:
            # It finds and filters the files, and then calls this function of its module.
            with _lock:
                original = default_loader.safetensors_weights_iterator
                default_loader.safetensors_weights_iterator = weights
                try:
                    return super()._get_weights_iterator(source)
                finally:
                    default_loader.safetensors_weights_iterator = original

    return StraitModelLoader


def register() -> None:
    """The entry point of vLLM's general plugins."""
    from vllm.model_executor.model_loader import register_model_loader
    register_model_loader('strait')(_loader())
