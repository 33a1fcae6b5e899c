"""rounded.py: plain.py with the roundings of the tuned path (docs/numerics.md).

Keys, values and latents are kept as f16.  In prompts, on a matrix unit, both operands of a product
are rounded to bf16, the weights of a softmax among them.  (The first rows of a prompt are multiplied
as generated tokens are with matrices of 256 columns and more, which no model here has.)  Sums are
exact here and f32 there: what
the tuned path computes is as near to this as the reference is to plain.py, but for the few numbers
that lie in the middle between two roundings.  What is not near does something else than rounding."""

import math
import struct

from plain import Model, dot, matrix


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


class Rounded(Model):
    def __init__(self, config, weights, prompt, matrix_unit):
        """matrix_unit: whether products of prompts are made in bf16."""
        super().__init__(config, weights)
        self.prompt, self.matrix_unit = prompt, prompt and matrix_unit
        self.panels = {}

    def multiply(self, w, x):
        if not self.matrix_unit:
            return matrix(w, x)
        assert len(x) < 256
        if id(w) not in self.panels:
            self.panels[id(w)] = [[bf16(t) for t in row] for row in w]
        return matrix(self.panels[id(w)], [bf16(t) for t in x])

    def remember(self, x):
        return [f16(t) for t in x]

    def operand(self, x):
        return [bf16(t) for t in x] if self.matrix_unit else x

    def expanded(self, x):
        """Keys and values of latents are made anew for generated tokens, and not rounded."""
        return self.operand(self.remember(x) if self.prompt else x)

    def attend(self, q, keys, values, scale, sink=None):
        q = self.operand(q)
        scores = [dot(q, self.expanded(k)) * scale for k in keys]
        most = max(scores)
        if sink is not None and (most - sink) / math.log(2) <= 8:
            most = sink           # the first greatest; another one has to be 2^8 times as large
        weights = [math.exp(t - most) for t in scores]
        total = sum(weights) + (0 if sink is None else math.exp(sink - most))
        rounded = self.operand(weights)
        return [dot(rounded, self.expanded(column)) / total for column in zip(*values)]
