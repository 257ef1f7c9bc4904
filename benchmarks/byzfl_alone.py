"""ByzFL without what it imports besides, torchvision and plotting: empty modules stand in for them."""

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from unittest.mock import MagicMock

BESIDES = ["torchvision", "torchvision.models", "matplotlib", "matplotlib.pyplot", "seaborn"]


def load(module: str = "byzfl") -> ModuleType:
    """A module of ByzFL, which must be installed: `pip install --no-deps byzfl`."""
    roots = {name: name.partition(".")[0] for name in BESIDES if name not in sys.modules}
    missing = [name for name, root in roots.items() if find_spec(root) is None]
    sys.modules.update({name: MagicMock() for name in missing})
    return importlib.import_module(module)
