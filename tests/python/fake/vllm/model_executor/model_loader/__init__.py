# SPDX-License-Identifier: MIT
"""The registry of loaders."""
LOADERS = {}


def register_model_loader(name):
    def take(cls):
        LOADERS[name] = cls
        return cls
    return take
