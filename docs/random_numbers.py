#!/usr/bin/env python3
"""Order, samples and initial weights of a run from its seeds: docs/math/random_numbers.md.
    random_numbers.py window SEED POSITION CORPUS BEGIN END SEQUENCE      its first token
    random_numbers.py blend POSITION WEIGHT...           corpus, and position in its order
    random_numbers.py spans SEED CORPUS EPOCH WINDOW KEPT HIDDEN COUNT       their lengths
    random_numbers.py batch_size SAMPLES GLOBAL START INCREMENT RAMP
    random_numbers.py weight SEED NAME ROW COLUMN COLUMNS STD
"""
import functools, itertools, math, struct, sys

def block(seed, stream, owner, n, layer=0, site=0):  # Philox-4x32-10: four words
    c = [n & 0xffffffff, owner & 0xffffffff, n >> 32 & 0xffff | owner >> 16 & 0xffff0000,
         layer | site << 16 | stream << 24]
    for i in range(10):
        k0, k1 = seed + i * 0x9e3779b9, (seed >> 32) + i * 0xbb67ae85
        p, q = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [w & 0xffffffff for w in (q >> 32 ^ c[1] ^ k0, q, p >> 32 ^ c[3] ^ k1, p)]
    return c
def permute(i, n, seed, key):  # Feistel network of ten rounds, and cycle walking
    bits = max(1, ((n - 1).bit_length() + 1) // 2)
    while True:
        left, right = i >> bits, i & (1 << bits) - 1
        for k in range(10):
            word = block(seed, 1, key, right, layer=k)[0]
            left, right = right, left ^ word & (1 << bits) - 1
        i = left << bits | right
        if i < n:
            return i
def window(seed, position, corpus, begin, end, sequence):
    n = (end - begin - 1) // sequence
    key = corpus << 32 | position // n & 0xffffffff
    return begin + sequence * permute(position % n, n, seed, key)
def blend(position, *weights):
    rest = functools.reduce(lambda a, b: a + b, weights)
    for corpus, weight in enumerate(weights):
        is_last = corpus + 1 == len(weights)
        share = 2**32 if is_last else int(weight / rest * 2**32 + 0.5)
        own = position * share >> 32
        if is_last or (position + 1) * share >> 32 > own: return corpus, own
        position, rest = position - own, rest - weight
def draws(seed, corpus, epoch, window, purpose):  # the words of a sample, without end
    for n in itertools.count(corpus << 32):
        yield from block(seed, 4, window, n, layer=epoch & 0xffff, site=purpose)
def below(words, n):
    while True:
        product = next(words) * n
        if product & 0xffffffff >= 2**32 % n: return product >> 32
def choose(words, chosen, count):  # of 0 ... count - 1
    marks = set()
    for last in range(count - chosen, count):
        drawn = below(words, last + 1)
        marks.add(last if drawn in marks else drawn)
    return sorted(marks)
def spans(seed, corpus, epoch, window, kept, hidden, count):
    def cut(items, purpose):
        words = draws(seed, corpus, epoch, window, purpose)
        ends = [gap + 1 for gap in choose(words, count - 1, items - 1)]
        return [end - begin for begin, end in zip([0] + ends, ends + [items])]
    return list(zip(cut(kept, 2), cut(hidden, 1)))
def batch_size(samples, full, start, increment, ramp):
    risen = samples * ((full - start) // increment) // ramp
    return full if samples >= ramp else min(full, start + risen * increment)
def weight(seed, name, row, column, columns, std):
    owner = 0xcbf29ce484222325  # FNV-1a of the name, of which 48 bits are used
    for byte in name.encode():
        owner = (owner ^ byte) * 0x100000001b3 & 2**64 - 1
    words = block(seed, 0, owner, row * -(-columns // 4) + column // 4)
    u, v = words[:2] if column % 4 < 2 else words[2:]  # of Box and Muller
    wave = (math.cos, math.sin)[column % 2](math.tau * v / 2**32)
    value = std * (math.sqrt(-2 * math.log((2 * u + 1) / 2**33)) * wave)
    return struct.unpack("f", struct.pack("f", value))[0]
if __name__ == "__main__":
    made = {f.__name__: f for f in (window, blend, spans, batch_size, weight)}[sys.argv[1]]
    print(made(*(a if a[0].isalpha() else float(a) if set(a) & set(".e") else int(a)
                 for a in sys.argv[2:])))
