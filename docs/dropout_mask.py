#!/usr/bin/env python3
"""A row of a dropout mask, 1 where it is kept: docs/math/dropout.md.
    dropout_mask.py SEED SAMPLE LAYER SITE ROW LENGTH P"""
import sys

def call(seed, sample, layer, site, n):  # Philox4x32-7: eight 16-bit words
    c = [n & 0xffffffff, sample & 0xffffffff,
         n >> 32 & 0xffff | sample >> 16 & 0xffff0000, layer | site << 16 | 2 << 24]
    for i in range(7):
        k0, k1 = seed + i * 0x9e3779b9, (seed >> 32) + i * 0xbb67ae85
        p, q = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [w & 0xffffffff for w in (q >> 32 ^ c[1] ^ k0, q, p >> 32 ^ c[3] ^ k1, p)]
    return [w >> 16 * e & 0xffff for w in c for e in (0, 1)]
def mask(seed, sample, layer, site, row, length, p):
    of_keys = site in (1, 4)  # attention's probabilities: groups of 32 keys in four calls
    per_row = 4 * -(-length // 32) if of_keys else -(-length // 8)
    words = [call(seed, sample, layer, site, row * per_row + n) for n in range(per_row)]
    place = lambda j: (j // 32 * 4 + j % 8 // 2, j % 32 // 8 * 2 + j % 2)
    where = [place(j) if of_keys else (j // 8, j % 8) for j in range(length)]
    return "".join("01"[words[n][k] >= int(65536 * p + 0.5)] for n, k in where)
if __name__ == "__main__":
    print(mask(*map(int, sys.argv[1:7]), float(sys.argv[7])))
