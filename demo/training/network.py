"""A small llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied embeddings.

The rotation acts on neighbouring pairs (2i, 2i+1), as in llama.cpp's architecture "llama". The
exported weights therefore need no permutation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    vocabulary: int
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    hidden: int = 704
    context: int = 2048
    rope_base: float = 10_000.0
    epsilon: float = 1e-5


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.width, shape.heads * shape.head_width, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * shape.head_width, bias=False)
        self.out = nn.Linear(shape.heads * shape.head_width, shape.width, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        q = rotate(self.split(self.q(x)), rotation)
        k = rotate(self.split(self.k(x)), rotation)
        v = self.split(self.v(x))
        repeat = self.shape.heads // self.shape.kv_heads
        k, v = (t.repeat_interleave(repeat, dim=1) for t in (k, v))
        mixed = functional.scaled_dot_product_attention(
            q, k.to(q.dtype), v.to(q.dtype), is_causal=True
        )
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return joined

    def split(self, x: Tensor) -> Tensor:
        """Reshape (rows, length, heads * head_width) to (rows, heads, length, head_width)."""
        return x.reshape(*x.shape[:-1], -1, self.shape.head_width).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return result


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Llama(nn.Module):
    rotation: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.epsilon)
        self.register_buffer("rotation", rotation_table(shape), persistent=False)
        self.apply(init_weights)

    def forward(self, tokens: Tensor) -> Tensor:
        """Turn token ids (rows, length) into final states (rows, length, width)."""
        x: Tensor = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation[: tokens.shape[1]])
        result: Tensor = self.norm(x)
        return result

    def logits(self, states: Tensor) -> Tensor:
        """Return scores over the vocabulary, computed with the embedding matrix."""
        return functional.linear(states, self.embedding.weight)


def init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.03)


def rotation_table(shape: Shape) -> Tensor:
    """Return cosine and sine of each angle, with the shape (context, head_width / 2, 2)."""
    pairs = torch.arange(0, shape.head_width, 2) / shape.head_width
    angles = torch.outer(torch.arange(shape.context), shape.rope_base**-pairs)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate each neighbouring pair of `x` (rows, heads, length, head_width) by its angle."""
    even, odd = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cosine, sine = rotation.unbind(-1)
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    return turned.flatten(-2).to(x.dtype)
