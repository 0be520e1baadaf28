# SPDX-License-Identifier: MIT
"""vLLM: --load-format strait, registered through vLLM's plugins. Tensors of the model's files arrive on the GPU one by one."""
import copy
import inspect
from typing import Any, Iterator, Tuple

from ._files import iter_tensors


def _loader() -> Any:
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class StraitModelLoader(DefaultModelLoader):  # type: ignore[misc,valid-type]
        """The default loader, with the weights of safetensors files read into the GPU's memory."""

        def __init__(self, load_config: Any) -> None:
            # The default loader looks for files by format; "strait" is the same files.
            known = copy.copy(load_config)
            known.load_format = 'safetensors'
            super().__init__(known)

        def _get_weights_iterator(self, source: Any) -> Iterator[Tuple[str, Any]]:
            names = [name for name in inspect.signature(self._prepare_weights).parameters]
            values = [getattr(source, 'model_or_path' if name == 'model_name_or_path' else name) for name in names]
            found = self._prepare_weights(*values)
            files, safetensors = found[1], found[2]
            if not safetensors:
                yield from super()._get_weights_iterator(source)
                return
            import torch
            device = f'cuda:{torch.cuda.current_device()}' if torch.cuda.is_available() else 'cpu'
            for name, tensor in iter_tensors(sorted(files), device, framework='pt'):
                yield source.prefix + name, tensor

    return StraitModelLoader


def register() -> None:
    """The entry point of vLLM's general plugins."""
    from vllm.model_executor.model_loader import register_model_loader
    register_model_loader('strait')(_loader())
