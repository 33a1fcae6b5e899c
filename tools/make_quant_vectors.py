#!/usr/bin/env python3
"""Vectors for the conformance test of the weight formats, computed without the C code.

    tools/make_quant_vectors.py tests/fixtures/quant/model.safetensors

Every number is taken from the bytes by the formula that documents the format,
one element at a time, in Python floats (doubles), and rounded to f32 where the
C reference rounds.  A product of two f32 is exact in a double, and rounding a
double sum or quotient of two f32 to f32 gives the same as rounding once, so
the expected values are exact: the test compares bits.

For a case C of format F the file holds
    F/C.values     U8  [rows, row bytes]
    F/C.scales     F32, BF16, F16 or F8_E8M0     where the format keeps them apart
    F/C.biases
    F/C.groups     I32 [2]: rows and columns that share a scale
    F/C.expected   F32 [rows, cols]
and for a format that is written
    F/C.input      F32 [rows, cols]: what quantising must turn into the values.
Standard library only; the same seed always gives the same file.
"""

import json
import math
import random
import struct
import sys

rng = random.Random(20240607)

# ---------------------------------------------------------------- small floats


def f32(x):
    """The double x rounded to f32."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def minifloat(bits, exponent_bits, mantissa_bits, infinities=True):
    """A small IEEE-like float by definition."""
    top = (1 << exponent_bits) - 1
    bias = top >> 1
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    exponent = bits >> mantissa_bits & top
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent == top:
        if infinities:
            return math.nan if mantissa else sign * math.inf
        if mantissa == (1 << mantissa_bits) - 1:
            return math.nan
    fraction = mantissa / (1 << mantissa_bits)
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias)
    return sign * math.ldexp(1.0 + fraction, exponent - bias)


def f16(bits):
    return minifloat(bits, 5, 10)


def bf16(bits):
    return minifloat(bits, 8, 7)


def e4m3(bits):
    return minifloat(bits, 4, 3, infinities=False)


def e5m2(bits):
    return minifloat(bits, 5, 2)


def e8m0(bits):
    return math.nan if bits == 255 else math.ldexp(1.0, bits - 127)


def half_at(block, at):
    return f16(block[at] | block[at + 1] << 8)


def bit(word, n):
    return word >> n & 1


def signed(byte):
    return byte - 256 if byte > 127 else byte


# ------------------------------------------------- GGUF blocks, element by element

LEVELS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
FP4 = [0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6]


def nib(qs, e):
    return qs[e] & 15 if e < 16 else qs[e - 16] >> 4


def u32(b, at):
    return int.from_bytes(b[at:at + 4], "little")


def q4_0(b, e):
    return half_at(b, 0) * (nib(b[2:], e) - 8)


def q4_1(b, e):
    return f32(half_at(b, 0) * nib(b[4:], e)) + half_at(b, 2)


def q5_0(b, e):
    return half_at(b, 0) * ((nib(b[6:], e) | bit(u32(b, 2), e) << 4) - 16)


def q5_1(b, e):
    return f32(half_at(b, 0) * (nib(b[8:], e) | bit(u32(b, 4), e) << 4)) + half_at(b, 2)


def q8_0(b, e):
    return half_at(b, 0) * signed(b[2 + e])


def iq4_nl(b, e):
    return half_at(b, 0) * LEVELS[nib(b[2:], e)]


def mxfp4(b, e):
    return e8m0(b[0]) * FP4[nib(b[1:], e)]


def q2_k(b, e):
    n, j, l = e // 128, e % 128 // 32, e % 32
    s = b[e // 16]
    q = b[16 + 32 * n + l] >> 2 * j & 3
    return f32(half_at(b, 80) * (s & 15) * q) - f32(half_at(b, 82) * (s >> 4))


def q3_k(b, e):
    n, j, l, t = e // 128, e % 128 // 32, e % 32, e // 16
    hm, qs, sc = b[0:32], b[32:96], b[96:108]
    lo = sc[t] & 15 if t < 8 else sc[t - 8] >> 4
    hi = sc[8 + t % 4] >> 2 * (t // 4) & 3
    s = (lo | hi << 4) - 32
    q = (qs[32 * n + l] >> 2 * j & 3) - (0 if bit(hm[l], 4 * n + j) else 4)
    return half_at(b, 108) * s * q


def k_scale_min(sc, t):
    if t < 4:
        return sc[t] & 63, sc[t + 4] & 63
    return ((sc[t + 4] & 15) | (sc[t - 4] >> 6) << 4,
            (sc[t + 4] >> 4) | (sc[t] >> 6) << 4)


def q4_k(b, e, fifth=0, qs_at=16):
    t, l = e // 32, e % 32
    s, m = k_scale_min(b[4:16], t)
    byte = b[qs_at + 32 * (e // 64) + l]
    q = (byte & 15 if t % 2 == 0 else byte >> 4) + 16 * fifth
    return f32(half_at(b, 0) * s * q) - f32(half_at(b, 2) * m)


def q5_k(b, e):
    return q4_k(b, e, bit(b[16 + e % 32], e // 32), 48)


def q6_k(b, e):
    n, j, l = e // 128, e % 128 // 32, e % 32
    byte = b[64 * n + 32 * (j & 1) + l]
    lo = byte & 15 if j < 2 else byte >> 4
    hi = b[128 + 32 * n + l] >> 2 * j & 3
    return half_at(b, 208) * signed(b[192 + e // 16]) * ((lo | hi << 4) - 32)


def iq4_xs(b, e):
    t = e // 32
    sh = b[2] | b[3] << 8
    ls = (b[4 + t // 2] >> 4 * (t % 2) & 15) | (sh >> 2 * t & 3) << 4
    return half_at(b, 0) * (ls - 32) * LEVELS[nib(b[8 + 16 * t:], e % 32)]


#          elements, bytes, where the f16 scales lie, value of element e
BLOCKS = {
    "Q4_0": (32, 18, [0], q4_0), "Q4_1": (32, 20, [0, 2], q4_1),
    "Q5_0": (32, 22, [0], q5_0), "Q5_1": (32, 24, [0, 2], q5_1),
    "Q8_0": (32, 34, [0], q8_0), "IQ4_NL": (32, 18, [0], iq4_nl),
    "MXFP4": (32, 17, [], mxfp4), "Q2_K": (256, 84, [80, 82], q2_k),
    "Q3_K": (256, 110, [108], q3_k), "Q4_K": (256, 144, [0, 2], q4_k),
    "Q5_K": (256, 176, [0, 2], q5_k), "Q6_K": (256, 210, [208], q6_k),
    "IQ4_XS": (256, 136, [0], iq4_xs),
}

# ------------------------------------------------------------------- the file

tensors = {}


def put(name, dtype, shape, data):
    tensors[name] = (dtype, shape, bytes(data))


def put_floats(name, shape, values):
    put(name, "F32", shape, b"".join(struct.pack("<f", f32(v)) for v in values))


EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e01]


def block_cases(name):
    elements, size, halves, value = BLOCKS[name]

    def random_block():
        b = bytearray(rng.randbytes(size))
        for at in halves:       # an ordinary scale
            b[at:at + 2] = struct.pack("<e", rng.uniform(-0.1, 0.1))
        if name == "MXFP4":
            b[0] = rng.randrange(100, 140)
        return b

    def case(label, rows):      # rows: lists of blocks
        put(f"{name}/{label}.values", "U8", [len(rows), len(rows[0]) * size],
            b"".join(b"".join(map(bytes, row)) for row in rows))
        put_floats(f"{name}/{label}.expected", [len(rows), len(rows[0]) * elements],
                   [value(b, e) for row in rows for b in row for e in range(elements)])

    count = 2 if elements == 256 else 6
    case("random", [[random_block() for _ in range(count)] for _ in range(2)])
    edges = [bytearray(b"\xff" * size), bytearray(size)]
    for bits in EDGE_HALVES if halves else ():
        b = random_block()
        for at in halves:
            b[at:at + 2] = struct.pack("<H", bits)
        edges.append(b)
    if name == "MXFP4":
        for power in (0, 1, 2, 127, 253, 254, 255):
            b = random_block()
            b[0] = power
            edges.append(b)
    if elements == 256:
        edges = edges[:2] + edges[4:6] + edges[-1:]     # keep the file small
    case("edges", [[b] for b in edges])


# ---------------------------------------------------------- scales kept apart

SCALES = {      # bits to value, value to bits, struct code
    "F32": (lambda b: struct.unpack("<f", struct.pack("<I", b))[0], "<I", 32),
    "F16": (f16, "<H", 16),
    "BF16": (bf16, "<H", 16),
    "F8_E8M0": (e8m0, "<B", 8),
}


def to_bits(dtype, x):
    """x rounded to dtype, nearest even."""
    if dtype == "F32":
        return struct.unpack("<I", struct.pack("<f", x))[0]
    if dtype == "F16":
        return struct.unpack("<H", struct.pack("<e", x))[0]
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    rest, upper = bits & 0xffff, bits >> 16
    return upper + (rest > 0x8000 or (rest == 0x8000 and upper & 1))


def put_scales(name, dtype, rows):
    put(name, dtype, [len(rows), len(rows[0])],
        b"".join(struct.pack(SCALES[dtype][1], b) for row in rows for b in row))


def pack(row, width):
    """One stream of bits, lowest first."""
    stream = 0
    for i, q in enumerate(row):
        stream |= q << i * width
    return stream.to_bytes(len(row) * width // 8, "little")


def affine_values(qs, scales, biases, group):
    return [[f32(f32(q * s[i // group]) + b[i // group]) for i, q in enumerate(row)]
            for row, s, b in zip(qs, scales, biases)]


def affine_case(width, group, dtype, edges=False):
    name = f"AFFINE{width}/{'edges' if edges else 'random'}_g{group}_{dtype}"
    rows, cols = 2, 128
    load = SCALES[dtype][0]
    qs = [[rng.randrange(1 << width) for _ in range(cols)] for _ in range(rows)]
    if edges:
        qs[0] = [(1 << width) - 1] * cols

    def some():
        return [[to_bits(dtype, rng.uniform(-0.2, 0.2)) for _ in range(cols // group)]
                for _ in range(rows)]
    scales, biases = some(), some()
    if edges:       # NaN, infinity, the smallest subnormal, -0, the largest number
        odd = {"F32": [0x7fc00001, 0xff800000, 1, 0x80000000, 0x7f7fffff],
               "F16": [0x7e01, 0xfc00, 1, 0x8000, 0x7bff],
               "BF16": [0x7fc1, 0xff80, 1, 0x8000, 0x7f7f]}[dtype]
        for i in range(cols // group * rows):
            scales[i * group // cols][i % (cols // group)] = odd[i % len(odd)]
            biases[i * group // cols][i % (cols // group)] = odd[(i * 2 + 2) % len(odd)]
    put(name + ".values", "U8", [rows, cols * width // 8], b"".join(pack(r, width) for r in qs))
    put_scales(name + ".scales", dtype, scales)
    put_scales(name + ".biases", dtype, biases)
    put(name + ".groups", "I32", [2], struct.pack("<ii", 1, group))
    values = affine_values(qs, [[load(b) for b in r] for r in scales],
                           [[load(b) for b in r] for r in biases], group)
    put_floats(name + ".expected", [rows, cols], [v for r in values for v in r])


def fit_group(group, width):
    """MLX's quantiser, every step rounded to f32."""
    steps = (1 << width) - 1
    lo, hi = min(group), max(group)
    s = max(f32(f32(hi - lo) / steps), f32(1e-7))
    if abs(lo) > abs(hi):
        edge = lo
    else:
        s, edge = -s, hi
    q0 = round(f32(edge / s))
    if q0 != 0:
        s, bias = f32(edge / q0), edge
    else:
        bias = 0.0
    q = [min(max(round(f32(f32(w - bias) / s)), 0), steps) for w in group]
    return q, s, bias


def affine_written(width, group, dtype):
    name = f"AFFINE{width}/written_g{group}_{dtype}"
    rows, cols = 2, 128
    inputs = [[f32(rng.gauss(0.05, 0.3)) for _ in range(cols)] for _ in range(rows)]
    inputs[0][:group] = [f32(0.25)] * group             # a flat group
    inputs[1][:group] = [0.0] * group
    inputs[1][group:2 * group] = [f32(abs(x)) for x in inputs[1][group:2 * group]]
    load = SCALES[dtype][0]
    qs, scales, biases = [], [], []
    for row in inputs:
        fits = [fit_group(row[g:g + group], width) for g in range(0, cols, group)]
        qs.append([q for fit in fits for q in fit[0]])
        scales.append([to_bits(dtype, fit[1]) for fit in fits])
        biases.append([to_bits(dtype, fit[2]) for fit in fits])
    put_floats(name + ".input", [rows, cols], [x for r in inputs for x in r])
    put(name + ".values", "U8", [rows, cols * width // 8], b"".join(pack(r, width) for r in qs))
    put_scales(name + ".scales", dtype, scales)
    put_scales(name + ".biases", dtype, biases)
    put(name + ".groups", "I32", [2], struct.pack("<ii", 1, group))
    values = affine_values(qs, [[load(b) for b in r] for r in scales],
                           [[load(b) for b in r] for r in biases], group)
    put_floats(name + ".expected", [rows, cols], [v for r in values for v in r])


def q8_0_written():
    """d = max|x| / 127, q = x / d to the nearest, halves away from zero."""
    inputs = [[f32(rng.gauss(0, 1)) for _ in range(64)], [0.0] * 32 + [f32(1e-3)] * 32]
    rows = []
    for row in inputs:
        blocks = b""
        for at in range(0, 64, 32):
            part = row[at:at + 32]
            d = f32(max(map(abs, part)) / 127.0)
            inverse = f32(1.0 / d) if d else 0.0
            qs = [int(math.copysign(math.floor(abs(f32(x * inverse)) + 0.5), x)) for x in part]
            blocks += struct.pack("<e", d) + struct.pack("<32b", *qs)
        rows.append(blocks)
    put_floats("Q8_0/written.input", [2, 64], [x for r in inputs for x in r])
    put("Q8_0/written.values", "U8", [2, 68], b"".join(rows))
    put_floats("Q8_0/written.expected", [2, 64],
               [q8_0(row[at:at + 34], e) for row in rows for at in (0, 34) for e in range(32)])


def tile_case(name, value, dtype, rows, cols, tile_rows, tile_cols):
    label = f"{name}/tiles_{tile_rows}x{tile_cols}_{dtype}"
    codes = [[(r * cols + c) % 256 if r < 2 else rng.randrange(256) for c in range(cols)]
             for r in range(rows)]
    down, across = -(-rows // tile_rows), -(-cols // tile_cols)
    load = SCALES[dtype][0]
    if dtype == "F8_E8M0":
        bits = [[rng.randrange(100, 150) for _ in range(across)] for _ in range(down)]
        bits[0][0], bits[-1][-1] = 0, 254
        bits[-1][0] = 255
    else:
        bits = [[to_bits(dtype, rng.uniform(-0.01, 0.01)) for _ in range(across)]
                for _ in range(down)]
        bits[-1][-1] = to_bits(dtype, 1e-38)            # products become subnormal
    put(label + ".values", "U8", [rows, cols], b"".join(map(bytes, codes)))
    put_scales(label + ".scales", dtype, bits)
    put(label + ".groups", "I32", [2], struct.pack("<ii", tile_rows, tile_cols))
    put_floats(label + ".expected", [rows, cols],
               [value(codes[r][c]) * load(bits[r // tile_rows][c // tile_cols])
                for r in range(rows) for c in range(cols)])


def plain_case(name, size, value, codes):
    put(f"{name}/plain.values", "U8", [1, len(codes) * size],
        b"".join(c.to_bytes(size, "little") for c in codes))
    put_floats(f"{name}/plain.expected", [1, len(codes)], [value(c) for c in codes])


def written_case(name, size, xs):
    """Plain floats of 16 bits: f32 input rounded to the nearest."""
    bits = [to_bits(name, x) for x in xs]
    load = SCALES[name][0]
    put_floats(f"{name}/written.input", [1, len(xs)], xs)
    put(f"{name}/written.values", "U8", [1, len(xs) * size],
        b"".join(b.to_bytes(size, "little") for b in bits))
    put_floats(f"{name}/written.expected", [1, len(xs)], [load(b) for b in bits])


def write(path):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def main():
    for name in BLOCKS:
        block_cases(name)
    q8_0_written()
    for width, group, dtype in [(2, 32, "F32"), (2, 64, "BF16"), (3, 64, "BF16"), (3, 128, "F16"),
                                (4, 32, "F16"), (4, 64, "BF16"), (4, 128, "F32"), (5, 32, "BF16"),
                                (5, 64, "F32"), (6, 64, "F16"), (6, 32, "BF16"), (8, 64, "BF16"),
                                (8, 32, "F32")]:
        affine_case(width, group, dtype)
    for width, dtype in [(3, "F32"), (4, "F16"), (8, "BF16")]:
        affine_case(width, 32, dtype, edges=True)
    for width, group, dtype in [(2, 32, "BF16"), (3, 64, "F32"), (4, 64, "BF16"), (5, 32, "F16"),
                                (6, 64, "BF16"), (8, 32, "F32")]:
        affine_written(width, group, dtype)
    for dtype in ("F32", "BF16", "F8_E8M0"):
        tile_case("F8_E4M3", e4m3, dtype, 3, 256 + 7, 2, 128)
    tile_case("F8_E4M3", e4m3, "F32", 7, 40, 3, 16)
    tile_case("F8_E5M2", e5m2, "F32", 2, 150, 128, 128)
    halves = [0, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0x7e00, 0x8000, 0x8001, 0xfc00, 0xffff]
    plain_case("F16", 2, f16, halves + [rng.randrange(1 << 16) for _ in range(52)])
    plain_case("BF16", 2, bf16, halves + [rng.randrange(1 << 16) for _ in range(52)])
    plain_case("F32", 4, SCALES["F32"][0], [rng.randrange(1 << 32) for _ in range(32)])
    plain_case("F64", 8, lambda b: struct.unpack("<d", struct.pack("<Q", b))[0],
               [struct.unpack("<Q", struct.pack("<d", x))[0]
                for x in (0.1, -1e300, 1e-310, 1 / 3, math.inf, 2.0 ** -149, 1e-45)])
    xs = [f32(rng.gauss(0, 1)) for _ in range(60)] + [0.0, 1e-7, -6e-5, 65504.0]
    for name in ("F16", "BF16"):
        written_case(name, 2, xs)
    write(sys.argv[1])


if __name__ == "__main__":
    main()
