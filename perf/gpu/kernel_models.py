"""How long a kernel takes by its sizes: pure functions, for perf/gpu/predict.py.

Each is a bound with a few losses that are named: tiles and waves of products, what of two
units of a multiprocessor works at a time, the share of a copy's bandwidth. Losses are measured
on an H200 (measured/h200.jsonl) where nothing else is said; an A100's are taken to be the same.
"""
import math

# Kernels over rows reach this share of a copy's bandwidth, on arrays larger than caches.
ROW_SHARE = 0.90
# Those that do not have so much to compute, or wait so long for it, that a multiprocessor moves
# these bytes in a cycle: by the beginning of their names, of which the first that fits counts.
# The loss in place moved 12.6, too, as it was on 28 November. With a quarter fewer instructions
# and the next row on its way it is assumed to move as many as gradients of norms.
BYTES_OF_A_CYCLE = (("layer_norm_forward", 16.0), ("layer_norm_backward_", 11.6),
                    ("layer_norm_backward", 13.5),
                    ("residual_norm_backward[post_norm]", 11.7), ("residual_norm_backward", 15.3),
                    ("cross_entropy_in_place", 15.3), ("cross_entropy", 12.6),
                    ("attention_backward[delta]", 10.4),
                    ("add_partials", 6.0), ("sum_row_blocks", 14.0),
                    ("embedding_backward[sum]", 6.4), ("embedding", 10.1), ("adamw", 15.2),
                    ("rms_norm_forward", 12.4), ("rms_norm_backward", 10.1))
# From the end of a kernel to the work of the next one in the same queue, and how long a
# kernel's first bytes take: assumed.
LAUNCH_GAP = 1.0e-6
FIRST_BYTES = 1.5e-6
# Instructions of a thread for a pair of rows whose ids are compared: 2.6 by the machine code, of
# which a multiprocessor does half as many in a cycle as of others.
INSTRUCTIONS_OF_A_PAIR = 5.2
# What a launch through Kokkos or a library takes the host: assumed. It is hidden as long as
# kernels take longer.
HOST_LAUNCH = 5.0e-6
# Instructions of a thread for an element, where they can take longer than its bytes:
# of one rounding, with the exponential and the division of the GPU's own unit.
INSTRUCTIONS_OF_AN_ELEMENT = {"apply_epilogue": 32, "gelu_forward": 28, "gelu_backward": 50}
BYTES_OF_AN_ELEMENT = {"apply_epilogue": 4, "gelu_forward": 4, "gelu_backward": 6}

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
# How a product of operands that begin at no multiple of 16 bytes compares: assumed.
UNALIGNED_SHARE = 0.6


def divide_up(a, b):
    return -(-a // b)


def product_seconds(machine, product):
    """Of one product: the best of tiles and cuts of k, in whole waves of tiles, and not less
    than memory takes. `product` has m, n, k, type_c, alignment and whether C is read."""
    m, n, k = product["m"], product["n"], product["k"]
    bytes_c = 4 if product["type_c"] in ("fp32", "float32") else 2
    moved = 2 * (m * k + n * k) + bytes_c * m * n * (2 if product["reads_c"] else 1)
    least = moved / machine.copy_bandwidth
    best = math.inf
    for rows, columns, share in machine.tiles:
        if product["alignment"] < 16:
            share *= UNALIGNED_SHARE
        rate = share * machine.sustained * machine.gemm_peak / machine.multiprocessors
        for split in SPLITS:
            if split > 1 and k // split < 256:
                break
            tiles = divide_up(m, rows) * divide_up(n, columns) * split
            waves = divide_up(tiles, machine.multiprocessors)
            inner = divide_up(divide_up(k, split), 32) * 32
            seconds = waves * (2 * rows * columns * inner / rate + machine.wave_seconds)
            # Parts of k are stored in float, read again and added by a kernel of its own.
            stored = m * n * (bytes_c if split == 1 else 4 * split)
            seconds += machine.store_shown * stored / machine.copy_bandwidth
            if split > 1:
                seconds += (stored + bytes_c * m * n) / (ROW_SHARE * machine.copy_bandwidth)
                seconds += LAUNCH_GAP
            best = min(best, seconds)
    return max(best, least) + LAUNCH_GAP


def row_seconds(machine, label, calls, moved):
    """Of all calls of a kernel that passes over rows and moves so many bytes in all."""
    rate = ROW_SHARE * machine.copy_bandwidth
    for begin, of_a_cycle in BYTES_OF_A_CYCLE:
        if label.startswith(begin):
            rate = min(rate, of_a_cycle * machine.multiprocessors * machine.clock)
            break
    seconds = moved / rate
    if label in INSTRUCTIONS_OF_AN_ELEMENT:
        elements = moved / BYTES_OF_AN_ELEMENT[label]
        seconds = max(seconds, elements * INSTRUCTIONS_OF_AN_ELEMENT[label] / machine.lane_rate)
    return seconds + calls * (LAUNCH_GAP + FIRST_BYTES)


def order_seconds(machine, calls, rows):
    """Of sorting the rows of an embedding's gradient, each compared with all others."""
    return calls * (rows * rows * INSTRUCTIONS_OF_A_PAIR / machine.lane_rate + LAUNCH_GAP)


# Launches for a token of a text: embedding, head and draw beside the layers, and those of each
# layer where a block has not the shared memory for all layers in one launch
# (tests/unit/model/test_cuda_launches.cpp).
TOKEN_LAUNCHES_OF_A_LAYER, TOKEN_LAUNCHES_BESIDE = 5, 3
# From a kernel of a token's graph to the next one, beside what reading its weights takes, where
# kernels start early: fitted to GPT-2 124M on an H200. A warp's instructions are most of it.
TOKEN_LAUNCH = 3.3e-6
# Of a layer where all are one launch, beside what reading its weights takes; and the share of a
# copy's bandwidth at which keys and values are read there. Both fitted to that launch alone on an
# H200, of GPT-2 124M (180 and 196 us with 128 and 768 positions) and of 1.2B (1086 and 1209):
# within 3 % of all four.
TOKEN_LAYER = 11.4e-6
TOKEN_KEYS_SHARE = 0.32
# Of the launches beside it, and of its own: fitted to a whole token of GPT-2 124M on an H200
# (245 us), before facts and draws were shared out to more threads.
TOKEN_BESIDE_LAYERS = 31e-6


def weight_bytes(case):
    """Of what a token multiplies by: all but the table of positions, in 16 bits."""
    return 2 * (case["parameters"] - case["sequence"] * case["hidden"])


def token_seconds(machine, case, context):
    """Of a token of one text, of which `context` tokens are there: weights and what is kept of
    the context are read once, by the kernels of one graph, one behind the other."""
    kept = 4 * case["layers"] * case["hidden"] * context
    weights = weight_bytes(case) / (ROW_SHARE * machine.copy_bandwidth)
    if case["token_shared_bytes"] <= machine.block_shared_bytes:
        return (weights + TOKEN_BESIDE_LAYERS
                + kept / (TOKEN_KEYS_SHARE * machine.copy_bandwidth)
                + case["layers"] * TOKEN_LAYER)
    launches = TOKEN_LAUNCHES_BESIDE + case["layers"] * TOKEN_LAUNCHES_OF_A_LAYER
    return (weights + kept / (ROW_SHARE * machine.copy_bandwidth) + launches * TOKEN_LAUNCH)


# ---- attention

FORWARD_QUERIES, BACKWARD_QUERIES, BACKWARD_KEYS = 128, 64, 128
# Of what the second busiest unit of a multiprocessor has to do, how much is not done while
# the busiest works: two blocks take turns, one block waits at its barriers and for what its
# other units have to do as well. These four are fitted to twelve shapes of heads of 64 to 128,
# lengths of 1024 to 8192, forward and backward; no shape is further off than 6 %. That was
# before the backward kernel had two ways of a round: it is not fitted anew.
SHOWN_OF_TWO_BLOCKS, SHOWN_OF_ONE_BLOCK = 0.9, 1.2
BARRIER_CYCLES = 200
# Until a block's first tiles are there, and its last ones are stored.
BLOCK_CYCLES = 6000
# Of a multiprocessor: quarters that issue one instruction a cycle, lanes of special functions
# a cycle of a quarter, bytes of shared memory a cycle.
QUARTERS, SPECIAL_LANES, SHARED_BYTES = 4, 4, 128


def forward_keys(head_size):
    """Keys of a tile of the forward kernel (kernels/cuda/attention_forward.hpp)."""
    return 64 if head_size <= 96 else 32


def dynamic(entry, wanted_tensor):
    """Instructions of one round of the main loop that asks no mask, with those of the loops
    inside as often as makes the instructions of tensor cores `wanted_tensor`."""
    counts = dict(entry["loop"])
    inner = entry["inner"]
    tensor_loops = [loop for loop in inner if loop["tensor"]]
    trips = _trips([loop["tensor"] for loop in tensor_loops],
                   wanted_tensor - counts["tensor"])
    for loop, times in [*zip(tensor_loops, trips),
                        *((loop, 1) for loop in inner if not loop["tensor"])]:
        for name, count in loop.items():
            counts[name] += times * count
    return counts


def _trips(steps, wanted):
    """How often loops run whose rounds add these numbers to the one that is wanted: where that
    leaves a choice, as equally often as they can."""
    found = _all_trips(tuple(steps), wanted)
    if not found:
        raise ValueError(f"no number of rounds makes {wanted} of {steps}" if steps else
                         f"the main loop has {-wanted} instructions of tensor cores too many")
    return min(found, key=lambda trips: max(trips, default=0) - min(trips, default=0))


def _all_trips(steps, wanted):
    if not steps:
        return [()] if wanted == 0 else []
    return [(first, *rest) for first in range(1, wanted // steps[0] + 1)
            for rest in _all_trips(steps[1:], wanted - first * steps[0])]


def round_cycles(machine, entry, counts):
    """Cycles of a multiprocessor for one round of the main loop of all its blocks."""
    warps = entry["blocks"] * entry["threads"] // 32
    of_quarter = warps / QUARTERS
    units = sorted((of_quarter * counts["tensor"] * machine.mma_cycles,
                    of_quarter * counts["all"],
                    of_quarter * counts["special"] * 32 / SPECIAL_LANES,
                    # ldmatrix moves four matrices of 128 bytes; others a word of each lane.
                    warps * (counts["matrix_loads"] * 512 + counts["shared"] * 128)
                    / SHARED_BYTES), reverse=True)
    shown = SHOWN_OF_ONE_BLOCK if entry["blocks"] == 1 else SHOWN_OF_TWO_BLOCKS
    barriers = counts["barriers"] * BARRIER_CYCLES if entry["blocks"] == 1 else 0
    return units[0] + shown * units[1] + barriers


def causal_rounds(length, queries, keys):
    """Of every block, tiles of keys that its tile of queries sees."""
    return [divide_up(min((tile + 1) * queries, length), keys)
            for tile in range(divide_up(length, queries))]


def causal_rounds_of_keys(length, queries, keys):
    """Of every block, tiles of queries that see one of its keys."""
    tiles = divide_up(length, queries)
    return [tiles - tile * keys // queries for tile in range(divide_up(length, keys))]


def rounds(kind, queries, keys):
    """causal_rounds() of attention of some kind: its lengths, and whether it is causal; where it
    is not, every query sees all keys."""
    if kind["causal"]:
        return causal_rounds(kind["queries"], queries, keys)
    return divide_up(kind["queries"], queries) * [divide_up(kind["keys"], keys)]


def rounds_of_keys(kind, queries, keys):
    """Likewise. That blocks then have to wait a round for the one of the keys behind theirs is
    not counted."""
    if kind["causal"]:
        return causal_rounds_of_keys(kind["queries"], queries, keys)
    return divide_up(kind["keys"], keys) * [divide_up(kind["queries"], queries)]


def masked_rounds_of_keys(kind, queries, keys):
    """Of every block, tiles of queries of which some do not see some key of its tile: those at
    the diagonal, and at ends that are no tile's."""
    if kind["causal"]:
        length = kind["queries"]
        return [min(keys // queries + (length % queries != 0), rounds)
                if (tile + 1) * keys <= length else rounds
                for tile, rounds in enumerate(causal_rounds_of_keys(length, queries, keys))]
    rounds = divide_up(kind["queries"], queries)
    return [rounds if (tile + 1) * keys > kind["keys"] else int(kind["queries"] % queries != 0)
            for tile in range(divide_up(kind["keys"], keys))]


def blocks_seconds(machine, entry, cycles_of_round, rounds, copies):
    """Of blocks that do so many rounds each, the longest first: each copy of the list is a
    head of a sample. The last ones leave half of the longest one's time to be waited for."""
    places = machine.multiprocessors * entry["blocks"]
    # A round takes cycles_of_round with all places of a multiprocessor busy.
    cycles = [one * cycles_of_round + BLOCK_CYCLES + entry["outside"]["all"] for one in rounds]
    tail = max(cycles) / 2 if copies * len(rounds) > places else 0
    mean = max(copies * sum(cycles) / places, max(cycles))
    return (mean + tail) / machine.clock


def attention_forward_seconds(machine, entry, samples, heads, kind, head_size):
    keys = forward_keys(head_size)
    # Two products of 32 queries of a warp with the keys of a tile.
    counts = dynamic(entry, 2 * 32 * keys * head_size // 2048)
    return blocks_seconds(machine, entry, round_cycles(machine, entry, counts),
                          rounds(kind, FORWARD_QUERIES, keys),
                          samples * heads) + LAUNCH_GAP


def attention_backward_seconds(machine, entry, samples, heads, kind, head_size):
    warps = entry["threads"] // 32
    counts = dynamic(entry, 5 * BACKWARD_QUERIES * BACKWARD_KEYS * head_size // 2048 // warps)
    cycles = round_cycles(machine, entry, counts)
    with_masks = round_cycles(machine, entry, {name: count + entry["masks"][name]
                                               for name, count in counts.items()})
    shape = kind, BACKWARD_QUERIES, BACKWARD_KEYS
    # In rounds that ask no mask.
    rounds = [of_block + masked * (with_masks / cycles - 1)
              for of_block, masked in zip(rounds_of_keys(*shape), masked_rounds_of_keys(*shape))]
    return blocks_seconds(machine, entry, cycles, rounds, samples * heads) + LAUNCH_GAP
