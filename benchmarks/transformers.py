"""Networks with random weights and believable statistics, in PyTorch and exported to ONNX.

Their time is that of trained ones; their answers mean nothing, but are the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, WORDS, TOKENS = 768, 12, 12, 30522, 128
PICTURE, PATCH, CLASSES = 224, 16, 1000

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Benchmark:
    """A network to time.

    Attributes:
        make: makes the module, in f32 on CPU.
        feed: makes inputs of a batch, by name; floats in f32.
    """

    make: Callable[[], nn.Module]
    feed: Callable[[int], dict[str, Array]]


class Block(nn.Module):
    """A layer of attention and one of two products, normalised before (`first`) or after."""

    def __init__(self, *, first: bool, causal: bool, together: bool) -> None:
        super().__init__()
        self.first, self.causal, self.together = first, causal, together
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        sizes = [3 * WIDTH] if together else [WIDTH] * 3
        self.given = nn.ModuleList([nn.Linear(WIDTH, size) for size in sizes])
        self.joined = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x: Tensor) -> Tensor:
        """Return what every token takes from the others: [N, T, WIDTH]."""
        batch, tokens, _ = x.shape
        if self.together:
            parts = self.given[0](x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            q, k, v = parts[0], parts[1], parts[2]
        else:
            q, k, v = (
                each(x).view(batch, tokens, HEADS, -1).transpose(1, 2) for each in self.given
            )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.joined(y.transpose(1, 2).reshape(batch, tokens, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, T, WIDTH]."""
        if self.first:
            x = x + self.attention(self.norms[0](x))
            return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.narrow(functional.gelu(self.wide(x))))


class Text(nn.Module):
    """Words to features; ``causal`` makes it a decoder, which normalises first."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(512, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        blocks = [Block(first=causal, causal=causal, together=causal) for _ in range(LAYERS)]
        self.blocks, self.causal = nn.Sequential(*blocks), causal

    def forward(self, ids: Tensor) -> Tensor:
        """Return features [N, T, WIDTH] of words [N, T]."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.norm(self.blocks(x)) if self.causal else self.blocks(self.norm(x))


class Vision(nn.Module):
    """ViT-B/16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        tokens = (PICTURE // PATCH) ** 2 + 1
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, tokens, WIDTH) * 0.02)
        blocks = [Block(first=True, causal=False, together=True) for _ in range(LAYERS)]
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Return scores [N, 1000] of pictures [N, 3, 224, 224]."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def _words(batch: int) -> dict[str, Array]:
    return {"ids": np.random.default_rng(1).integers(0, WORDS, (batch, TOKENS), np.int64)}


def _pictures(batch: int) -> dict[str, Array]:
    shape = (batch, 3, PICTURE, PICTURE)
    return {"image": np.random.default_rng(1).standard_normal(shape, np.float32)}


def _rows(size: int) -> Callable[[int], dict[str, Array]]:
    rng = np.random.default_rng(1)
    return lambda _: {"x": rng.standard_normal((size, size), np.float32)}


def _mobilenet_v2() -> nn.Module:
    """MobileNetV2, its normalisations fitted to noise, so that no layer's values fade away."""
    from torchvision.models import mobilenet_v2

    made: nn.Module = mobilenet_v2(weights=None)
    with torch.inference_mode():
        made.train()(torch.from_numpy(_pictures(8)["image"]))
        for each in made.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.reset_running_stats()
                each.momentum = None  # the mean of what comes
        made(torch.from_numpy(_pictures(8)["image"]))
    return made


NETWORKS: dict[str, Benchmark] = {
    "mobilenet_v2": Benchmark(_mobilenet_v2, _pictures),
    "bert_base": Benchmark(lambda: Text(causal=False), _words),
    "vit_b_16": Benchmark(Vision, _pictures),
    "decoder": Benchmark(lambda: Text(causal=True), _words),
    "product_4096": Benchmark(lambda: nn.Linear(4096, 4096, bias=False), _rows(4096)),
    "product_8192": Benchmark(lambda: nn.Linear(8192, 8192, bias=False), _rows(8192)),
}


def module(name: str) -> nn.Module:
    """Make a network with the same weights every time."""
    torch.manual_seed(0)
    return NETWORKS[name].make().eval()


def export(name: str, batch: int, path: Path) -> None:
    """Write a network as ONNX for that batch."""
    given = tuple(torch.from_numpy(array) for array in NETWORKS[name].feed(batch).values())
    names = list(NETWORKS[name].feed(batch))
    with torch.inference_mode():
        torch.onnx.export(module(name), given, path, input_names=names, dynamo=True, verbose=False)
