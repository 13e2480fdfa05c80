"""GPUs that predictions are made for: what their makers say, and what is assumed of them.

What is assumed of products made steps of an H200 that are within 4 % of what was measured
(measured/h200.jsonl; docs/performance.md); an A100 has not been asked. Each constant names where
it is from.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    arch: str                # whose machine code it runs
    multiprocessors: int
    block_shared_bytes: int  # that a block may have (CUDA C++ Programming Guide)
    clock: float             # Hz, while products run
    tensor_peak: float       # FLOP/s, bf16, dense, of the data sheet
    gemm_peak: float         # FLOP/s of the fastest product of bf16, as others measured it
    sustained: float         # share of it where products of all shapes take turns: assumed
    bandwidth: float         # bytes/s of the data sheet
    copy_share: float        # of it that a copy reaches: assumed
    memory: float            # bytes
    mma_cycles: float        # of a warp's m16n8k16 product on its quarter of a multiprocessor
    tiles: tuple             # of products: (rows, columns, share of gemm_peak)
    wave_seconds: float      # a wave of tiles' beginning and end: fitted to an H200's products
    store_shown: float       # share of storing a tile that no computing hides: the same

    @property
    def copy_bandwidth(self):
        return self.copy_share * self.bandwidth

    @property
    def lane_rate(self):
        """Instructions of single threads a second: four warps a cycle."""
        return self.multiprocessors * 128 * self.clock


# Tiles that cuBLAS has, with the share of the largest tile's rate that a multiprocessor
# reaches with it, being bound by what shared memory can feed: assumed.
AMPERE_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.94), (256, 64, 0.92),
                (64, 256, 0.92), (128, 64, 0.82), (64, 128, 0.82), (64, 64, 0.66))
HOPPER_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 192, 0.96), (192, 128, 0.96),
                (128, 128, 0.90), (256, 64, 0.86), (128, 64, 0.72), (64, 64, 0.5))

# m16n8k16 is 2048 multiply-adds. A quarter of an A100's multiprocessor makes 256 a cycle
# (NVIDIA A100 whitepaper, table 4), of an H100's 512; by mma.sync, which the kernels use, an
# H100 reaches 0.63 of that (Luo et al. 2024, arXiv:2402.13499, table 8).
A100_MMA_CYCLES = 2048 / 256
H100_MMA_CYCLES = 2048 / 512 / 0.63

# 312 TFLOP/s is 108 multiprocessors at 1.41 GHz (NVIDIA A100 data sheet); 989.4 is 132 at
# 1.83 GHz (NVIDIA H100 data sheet, SXM), where products of random numbers run at 1.4 to 1.75
# GHz as power allows. Their fastest products: 271 and 794 TFLOP/s by a search over shapes
# (Bekman, "Machine Learning Engineering", table of the maximum achievable matmul FLOPS).
_A100 = dict(arch="sm_80", multiprocessors=108, block_shared_bytes=163 << 10, clock=1.41e9,
             tensor_peak=312e12, gemm_peak=271e12, sustained=0.95, mma_cycles=A100_MMA_CYCLES,
             tiles=AMPERE_TILES, wave_seconds=0.75e-6, store_shown=0.3)
_HOPPER = dict(arch="sm_90a", multiprocessors=132, block_shared_bytes=227 << 10, clock=1.70e9,
               tensor_peak=989.4e12, gemm_peak=798e12, sustained=0.95, mma_cycles=H100_MMA_CYCLES,
               tiles=HOPPER_TILES, wave_seconds=0.5e-6, store_shown=0.2)

MACHINES = {
    machine.name: machine for machine in (
        Machine(name="A100-SXM-40GB", bandwidth=1555e9, copy_share=0.90, memory=40e9, **_A100),
        Machine(name="A100-SXM-80GB", bandwidth=2039e9, copy_share=0.88, memory=80e9, **_A100),
        Machine(name="H100-SXM", bandwidth=3352e9, copy_share=0.91, memory=80e9, **_HOPPER),
        Machine(name="H200", bandwidth=4800e9, copy_share=0.89, memory=141e9, **_HOPPER))}

# What GPUs are called by their driver -> as above.
DRIVER_NAMES = {"A100-SXM4-40GB": "A100-SXM-40GB", "A100-SXM4-80GB": "A100-SXM-80GB",
                "H100 80GB HBM3": "H100-SXM", "H200": "H200"}


def machine_of(driver_name):
    """The Machine that a driver's name means, or None: also of a slice (MIG), which is not
    the GPU of whose name its own begins."""
    name = DRIVER_NAMES.get(driver_name.removeprefix("NVIDIA ").strip())
    return MACHINES[name] if name else None
