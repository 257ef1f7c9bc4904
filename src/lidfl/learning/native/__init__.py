"""Small convolutional networks in C++: several times as fast as torch on a CPU, with the same results.

| file | what it holds |
|---|---|
| `plan.py` | which modules can be run |
| `build.py` | compiling at first use |
| `sparse.py`, `sparse.h` | softmax regression on images that are mostly background |
| `engine.py` | training and evaluation, as the rest of lidfl calls them |
| `engine.cpp` | the same in C++: threads, steps of SGD, evaluation |
| `network.h` | forwards and backwards through all layers |
| `winograd.h`, `direct.h` | convolution with pooling and ReLU: for 5×5 kernels over many channels, for all others |
| `gradients.h` | gradients of a convolution, from the few positions that have one |
| `products.h`, `packing.h`, `layers.h`, `vectors.h` | matrix products, the order of parameters, shapes, vectors |
"""

from lidfl.learning.native.build import NativeUnavailable, is_available
from lidfl.learning.native.engine import native, native_logits, runs
from lidfl.learning.native.plan import Plan, describe

__all__ = ["NativeUnavailable", "Plan", "describe", "is_available", "native", "native_logits", "runs"]
