#!/usr/bin/env python3
"""Makes the fixture of T5's buckets of relative positions with PyTorch.

    python3 tests/parity/make_t5_bucket_fixtures.py

Needs the package `torch`; written with version 2.15. The formula is that of T5 and of
Hugging Face's T5Attention._relative_position_bucket, whose logarithm is taken in 32 bits.
Into fixtures/t5_buckets.txt go, for some numbers of buckets and maximum distances and both
directions, the buckets of the relative positions key - query from -2048 to 2048: runs of
positions that share one, as first, last and bucket.
"""
import math
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
FARTHEST = 2048
SHAPES = [(32, 128), (8, 20), (16, 64), (32, 256)]


def bucket(relative_position, bidirectional, num_buckets, max_distance):
    relative_buckets = 0
    if bidirectional:
        num_buckets //= 2
        relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
        relative_position = torch.abs(relative_position)
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
    max_exact = num_buckets // 2
    is_small = relative_position < max_exact
    if_large = max_exact + (
        torch.log(relative_position.float() / max_exact)
        / math.log(max_distance / max_exact)
        * (num_buckets - max_exact)
    ).to(torch.long)
    if_large = torch.min(if_large, torch.full_like(if_large, num_buckets - 1))
    return relative_buckets + torch.where(is_small, relative_position, if_large)


def runs(buckets):
    first = 0
    for i in range(1, len(buckets) + 1):
        if i == len(buckets) or buckets[i] != buckets[first]:
            yield first - FARTHEST, i - 1 - FARTHEST, buckets[first]
            first = i


def main():
    positions = torch.arange(-FARTHEST, FARTHEST + 1)
    with open(os.path.join(HERE, "fixtures", "t5_buckets.txt"), "w") as out:
        for num_buckets, max_distance in SHAPES:
            for directions in ("both", "past"):
                of = bucket(positions, directions == "both", num_buckets, max_distance)
                table = list(runs(of.tolist()))
                print(directions, num_buckets, max_distance, len(table), file=out)
                for run in table:
                    print(*run, file=out)
    print(f"torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
