# SPDX-License-Identifier: MIT
"""Found through PYTHONPATH in programs of `strait run`: imports strait.patch, then the sitecustomize that this one hides."""
import os
import sys


def _import_patch():
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get('STRAIT_PATCH', '0') == '0':
        return here
    if 'strait' not in sys.modules:
        import importlib.util
        if importlib.util.find_spec('strait') is None:
            # Only this package: its folder may be that of another environment.
            package = os.path.dirname(here)
            spec = importlib.util.spec_from_file_location('strait', os.path.join(package, '__init__.py'),
                                                          submodule_search_locations=[package])
            module = sys.modules['strait'] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    import strait.patch  # noqa: F401
    return here


def _chain(here):
    import importlib.machinery
    spec = importlib.machinery.PathFinder.find_spec(
        'sitecustomize', [path for path in sys.path if os.path.realpath(path or '.') != os.path.realpath(here)])
    if spec is not None and spec.loader is not None:
        import importlib.util
        module = importlib.util.module_from_spec(spec)
        sys.modules['sitecustomize'] = module
        spec.loader.exec_module(module)


try:
    _found = _import_patch()
except Exception as error:  # the program runs without it
    sys.stderr.write(f'strait run: safetensors is not served: {error}\n')
    _found = os.path.dirname(os.path.abspath(__file__))
_chain(_found)
