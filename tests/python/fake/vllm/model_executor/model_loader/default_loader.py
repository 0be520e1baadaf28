# SPDX-License-Identifier: MIT
"""The loader that others derive from."""
import glob
import os
from types import SimpleNamespace


def safetensors_weights_iterator(files, use_tqdm, strategy=None, **options):
    raise AssertionError('not that of the derived loader')


class DefaultModelLoader:
    """Finds the files of a model."""
    Source = SimpleNamespace

    def __init__(self, load_config):
        if load_config.load_format not in ('auto', 'safetensors'):
            raise ValueError(f'Unknown load_format: {load_config.load_format}')
        self.load_config = load_config

    def _prepare_weights(self, model_name_or_path, subfolder, revision, fall_back_to_pt, allow_patterns_overrides):
        folder = os.path.join(model_name_or_path, subfolder or '')
        return folder, glob.glob(os.path.join(folder, '*.safetensors')), True, 'index'

    def _get_weights_iterator(self, source):
        _, files, _, _ = self._prepare_weights(source.model_or_path, source.subfolder, source.revision, source.fall_back_to_pt,
                                               source.allow_patterns_overrides)
        found = safetensors_weights_iterator(files, False, None, local_expert_ids=None)
        return ((source.prefix + name, tensor) for name, tensor in found)

    def get_all_weights(self, path):
        yield from self._get_weights_iterator(SimpleNamespace(
            model_or_path=path, subfolder=None, revision=None, fall_back_to_pt=True, allow_patterns_overrides=None, prefix='model.'))
