"""The arithmetic of perf/gpu/predict.py on cases worked by hand."""
import dataclasses
import json
import unittest

import gpu_modules  # noqa: F401  (finds perf/gpu)
import kernel_models as models
import predict
from machines import MACHINES, Machine, machine_of

# Ten multiprocessors of 1 TFLOP/s at 1 GHz beside a memory that copies 1 TB/s.
PLAIN = Machine(name="plain", arch="sm_80", multiprocessors=10, block_shared_bytes=100_000,
                clock=1e9, tensor_peak=10e12,
                gemm_peak=10e12, sustained=1.0, bandwidth=1e12, copy_share=1.0, memory=1e12,
                mma_cycles=8, tiles=((128, 128, 1.0),), wave_seconds=0.0, store_shown=0.0)


def product(m, n, k, **more):
    return {"m": m, "n": n, "k": k, "type_c": "bf16", "alignment": 16, "reads_c": False, **more}


class Products(unittest.TestCase):
    def test_whole_waves_run_at_the_peak(self):
        # Twenty tiles on ten multiprocessors: two waves of 2 * 128 * 128 * 1024 FLOPs.
        seconds = models.product_seconds(PLAIN, product(2560, 128, 1024))
        self.assertAlmostEqual(seconds, 2 * 2 * 128 * 128 * 1024 / 1e12 + models.LAUNCH_GAP)

    def test_a_tile_more_is_a_wave_more(self):
        # Of a k that is too short to be cut.
        two = models.product_seconds(PLAIN, product(2560, 128, 256))
        three = models.product_seconds(PLAIN, product(2561, 128, 256))
        self.assertAlmostEqual((three - models.LAUNCH_GAP) / (two - models.LAUNCH_GAP), 1.5)

    def test_memory_bounds_a_product_of_few_columns(self):
        # 2 * (8192 * 128 + 128 * 128) + 2 * 8192 * 128 bytes at 1 TB/s are 4.2 us, and the
        # products of 64 tiles in 7 waves 29.4 us on slow tensor cores, 0.3 us on fast ones.
        fast = dataclasses.replace(PLAIN, gemm_peak=1000e12)
        seconds = models.product_seconds(fast, product(8192, 128, 128))
        self.assertAlmostEqual(seconds, 4.227072e-6 + models.LAUNCH_GAP)

    def test_k_is_cut_where_tiles_are_few(self):
        # One tile of k 16384 takes 537 us alone; cut in eight, 67 us and the sums.
        alone = 2 * 128 * 128 * 16384 / 1e12
        seconds = models.product_seconds(PLAIN, product(128, 128, 16384))
        moved = 128 * 128 * (8 * 4 + 2) / models.ROW_SHARE / 1e12
        self.assertAlmostEqual(seconds, alone / 8 + moved + 2 * models.LAUNCH_GAP)

    def test_odd_addresses_cost(self):
        even = models.product_seconds(PLAIN, product(2560, 128, 1024))
        odd = models.product_seconds(PLAIN, product(2560, 128, 1024, alignment=2))
        self.assertAlmostEqual((even - models.LAUNCH_GAP) / (odd - models.LAUNCH_GAP),
                               models.UNALIGNED_SHARE)

    def test_storing_is_shown_as_far_as_nothing_hides_it(self):
        shown = dataclasses.replace(PLAIN, store_shown=0.5, wave_seconds=1e-6)
        more = (models.product_seconds(shown, product(2560, 128, 1024))
                - models.product_seconds(PLAIN, product(2560, 128, 1024)))
        self.assertAlmostEqual(more, 2 * 1e-6 + 0.5 * 2 * 2560 * 128 / 1e12)


class Tokens(unittest.TestCase):
    CASE = {"parameters": 1_010_000, "sequence": 100, "hidden": 100, "layers": 4}

    def seconds(self, shared_bytes, context=0):
        return models.token_seconds(PLAIN, {**self.CASE, "token_shared_bytes": shared_bytes},
                                    context)

    def test_layers_are_one_launch_where_a_block_has_room(self):
        # 2 MB of weights without the table of positions, and embedding, head and draw.
        weights = 2e6 / models.ROW_SHARE / 1e12
        self.assertAlmostEqual(self.seconds(100_000), weights + models.TOKEN_BESIDE_LAYERS
                               + 4 * models.TOKEN_LAYER, 12)
        self.assertAlmostEqual(self.seconds(100_001),
                               weights + (3 + 4 * 5) * models.TOKEN_LAUNCH, 12)

    def test_keys_and_values_are_read(self):
        for shared_bytes, share in ((1, models.TOKEN_KEYS_SHARE), (200_000, models.ROW_SHARE)):
            more = self.seconds(shared_bytes, 1000) - self.seconds(shared_bytes)
            self.assertAlmostEqual(more, 4 * 4 * 100 * 1000 / share / 1e12, 12)


class Rows(unittest.TestCase):
    def test_bytes_at_a_share_of_a_copy(self):
        seconds = models.row_seconds(PLAIN, "bias_dropout_add_forward", 2,
                                     models.ROW_SHARE * 1e11)
        self.assertAlmostEqual(seconds, 0.1 + 2 * (models.LAUNCH_GAP + models.FIRST_BYTES))

    def test_what_waits_for_sums_moves_so_many_bytes_in_a_cycle(self):
        bytes_of = dict(models.BYTES_OF_A_CYCLE)
        moved = 10 * bytes_of["residual_norm_backward"] * 1e8
        seconds = models.row_seconds(PLAIN, "residual_norm_backward", 1, moved)
        self.assertAlmostEqual(seconds, 0.1 + models.LAUNCH_GAP + models.FIRST_BYTES)
        # As fast as memory is, and no faster, where many multiprocessors share it.
        many = dataclasses.replace(PLAIN, multiprocessors=10000)
        seconds = models.row_seconds(many, "residual_norm_backward", 1, models.ROW_SHARE * 1e11)
        self.assertAlmostEqual(seconds, 0.1 + models.LAUNCH_GAP + models.FIRST_BYTES)

    def test_the_longer_name_is_asked_first(self):
        bytes_of = dict(models.BYTES_OF_A_CYCLE)
        for label in ("layer_norm_backward", "layer_norm_backward_input"):
            name = label.removesuffix("input")
            moved = 10 * bytes_of[name] * 1e8
            seconds = models.row_seconds(PLAIN, label, 1, moved)
            self.assertAlmostEqual(seconds, 0.1 + models.LAUNCH_GAP + models.FIRST_BYTES)

    def test_sorting_by_pairs_is_quadratic(self):
        one, two = (models.order_seconds(PLAIN, 3, rows) - 3 * models.LAUNCH_GAP
                    for rows in (10000, 20000))
        self.assertAlmostEqual(two / one, 4)
        # 1e8 pairs at 10 * 128 lanes of 1 GHz.
        self.assertAlmostEqual(one, 3 * 1e8 * models.INSTRUCTIONS_OF_A_PAIR / 1.28e12)

    def test_gelu_is_bound_by_instructions_where_memory_is_fast(self):
        # 1e9 elements of 32 instructions at 10 * 128 lanes of 1 GHz: 25 ms; 4 GB of bytes
        # take 0.2 ms of a memory of 20 TB/s.
        fast = dataclasses.replace(PLAIN, bandwidth=20e12)
        seconds = models.row_seconds(fast, "apply_epilogue", 1, 4e9)
        self.assertAlmostEqual(seconds, 32e9 / 1.28e12 + models.LAUNCH_GAP + models.FIRST_BYTES)


def entry(**loop):
    counts = {"all": 0, "tensor": 0, "special": 0, "matrix_loads": 0, "shared": 0, "global": 0,
              "barriers": 0}
    return {"threads": 128, "blocks": 2, "loop": {**counts, **loop}, "inner": [],
            "outside": counts}


class Attention(unittest.TestCase):
    def test_the_busiest_unit_and_a_part_of_the_next(self):
        # Two blocks of four warps: two warps a quarter. Tensor cores 2 * 100 * 8 cycles,
        # instructions 2 * 1000, special functions 2 * 50 * 8; the last is hidden.
        one = entry(tensor=100, all=1000, special=50)
        self.assertEqual(models.round_cycles(PLAIN, one, one["loop"]),
                         2000 + models.SHOWN_OF_TWO_BLOCKS * 1600)

    def test_one_block_waits_at_its_barriers(self):
        one = {**entry(tensor=100, all=1000, barriers=3), "blocks": 1}
        self.assertEqual(models.round_cycles(PLAIN, one, one["loop"]),
                         1000 + models.SHOWN_OF_ONE_BLOCK * 800 + 3 * models.BARRIER_CYCLES)

    def test_shared_memory_is_one_for_all_quarters(self):
        # Eight warps of 100 loads of 512 bytes, at 128 bytes a cycle.
        one = entry(matrix_loads=100)
        self.assertEqual(models.round_cycles(PLAIN, one, one["loop"]), 3200)

    def test_loops_inside_run_as_often_as_tensor_cores_want(self):
        inner = entry()["loop"]
        one = {**entry(tensor=96, all=1000),
               "inner": [{**inner, "all": 76, "tensor": 32}, {**inner, "all": 5},
                         {**inner, "all": 44, "tensor": 20}]}
        counts = models.dynamic(one, 200)  # 96 + 2 * 32 + 2 * 20
        self.assertEqual(counts["tensor"], 200)
        self.assertEqual(counts["all"], 1000 + 2 * 76 + 2 * 44 + 5)

    def test_loops_alike_run_equally_often(self):
        inner = {**entry()["loop"], "tensor": 32}
        one = {**entry(tensor=0), "inner": [{**inner, "all": size} for size in (50, 60, 70)]}
        self.assertEqual(models.dynamic(one, 192)["all"], 2 * (50 + 60 + 70))

    def test_no_number_of_rounds_is_an_error(self):
        one = {**entry(tensor=96), "inner": [{**entry()["loop"], "tensor": 32}]}
        with self.assertRaisesRegex(ValueError, "no number of rounds"):
            models.dynamic(one, 100)

    def test_causal_tiles(self):
        self.assertEqual(models.causal_rounds(1024, 128, 64), [2, 4, 6, 8, 10, 12, 14, 16])
        self.assertEqual(models.causal_rounds(130, 128, 64), [2, 3])
        self.assertEqual(models.causal_rounds_of_keys(512, 64, 128), [8, 6, 4, 2])

    def test_tiles_of_both_directions_and_of_two_lengths(self):
        causal = {"queries": 512, "keys": 512, "causal": True}
        self.assertEqual(models.rounds(causal, 128, 64), [2, 4, 6, 8])
        self.assertEqual(models.rounds_of_keys(causal, 64, 128), [8, 6, 4, 2])
        cross = {"queries": 114, "keys": 512, "causal": False}
        self.assertEqual(models.rounds(cross, 128, 64), [8])
        self.assertEqual(models.rounds_of_keys(cross, 64, 128), [2, 2, 2, 2])

    def test_tiles_in_which_some_query_does_not_see_some_key(self):
        def masked(queries, keys, causal):
            kind = {"queries": queries, "keys": keys, "causal": causal}
            return models.masked_rounds_of_keys(kind, 64, 128)

        self.assertEqual(masked(512, 512, True), [2, 2, 2, 2])
        self.assertEqual(masked(450, 450, True), [3, 3, 3, 2])  # 8, 6, 4 and 2 rounds
        self.assertEqual(masked(512, 512, False), [0, 0, 0, 0])
        self.assertEqual(masked(114, 300, False), [1, 1, 2])

    def test_masks_cost_what_they_add(self):
        kind = {"queries": 512, "keys": 512, "causal": True}
        nothing = {name: 0 for name in entry()["loop"]}
        plain = {**entry(tensor=160), "threads": 256, "masks": nothing}
        masked = {**plain, "masks": {**nothing, "all": 400}}
        hopper = MACHINES["H100-SXM"]
        seconds = [models.attention_backward_seconds(hopper, one, 16, 12, kind, 64)
                   for one in (plain, masked)]
        # Four warps of a quarter issue 400 more where tensor cores are busier. Each of 192 heads
        # has two such rounds in each of four blocks, and two places a multiprocessor to be in;
        # the longest block's are waited for by half behind that.
        more = models.SHOWN_OF_TWO_BLOCKS * 4 * 400
        self.assertAlmostEqual(seconds[1] - seconds[0],
                               (192 * 8 / (2 * 132) + 2 / 2) * more / hopper.clock, 12)

    def test_each_kind_of_attention_has_its_time(self):
        self_kind = {"blocks": 6, "queries": 512, "keys": 512, "causal": False, "bias": True}
        cross = {"blocks": 3, "queries": 114, "keys": 512, "causal": False, "bias": False}
        case = {"micro": 8, "heads": 8, "head_size": 64, "dropout": 0.0}
        plain, biased = entry(tensor=128, all=1000), entry(tensor=128, all=1500)
        instructions = {"attention_forward bf16 d64": {"sm_80": plain},
                        "attention_forward bf16 d64 bias": {"sm_80": biased}}

        def seconds(calls, *kinds):
            kernel = {"calls": calls, "flops": 1e12}
            return predict.attention_row(PLAIN, {**case, "attention": kinds}, "attention_forward",
                                         kernel, instructions).seconds
        self.assertAlmostEqual(seconds(18, self_kind, cross),
                               seconds(12, self_kind) + seconds(6, cross))
        self.assertGreater(seconds(6, self_kind), seconds(6, {**self_kind, "bias": False}))

    def test_blocks_share_the_multiprocessors(self):
        # 100 heads of rounds 1 and 3 on 20 places, a round 1000 cycles: (4000 + 2 * 6000)
        # cycles a head, five heads a place, and half of the longest block behind them.
        seconds = models.blocks_seconds(PLAIN, entry(), 1000, [3, 1], 100)
        self.assertAlmostEqual(seconds, (5 * 16000 + (3000 + models.BLOCK_CYCLES) / 2) / 1e9)

    def test_head_sizes_of_the_machine_code_can_be_counted(self):
        kernels = json.loads(predict.INSTRUCTIONS.read_text(encoding="utf-8"))["kernels"]
        for name, archs in kernels.items():
            head_size = int(name.split(" d")[1].split()[0])
            for arch, one in archs.items():
                with self.subTest(kernel=name, arch=arch):
                    if name.startswith("attention_forward"):
                        keys = models.forward_keys(head_size)
                        models.dynamic(one, 2 * 32 * keys * head_size // 2048)
                    elif name.startswith("attention_backward"):
                        models.dynamic(one, 5 * 64 * 128 * head_size // 2048 // 8)


CASE = {"vocab": 50257, "micro": 16, "sequence": 1024, "predicted": 1024, "dropout": 0.0}


class Head(unittest.TestCase):
    def test_a_gpu_takes_more_rows_of_logits_at_a_time(self):
        # 512 MiB are 5336 rows of 50304 words: four parts of 4096.
        forward = {**product(1280, 50304, 768), "transpose_a": False, "transpose_b": True,
                   "calls": 4 * 12}
        last = {**forward, "m": 16384 - 12 * 1280, "calls": 4}
        found = predict.as_on_a_gpu(CASE, [forward, last])
        self.assertEqual([(one["m"], one["calls"]) for one in found], [(4096, 16)])

    def test_parts_of_rows_that_do_not_divide(self):
        self.assertEqual(predict.rows_of_a_part(16384, 50304), 4096)
        self.assertEqual(predict.rows_of_a_part(5400, 50304), 2720)  # 2700 in multiples of 32
        self.assertEqual(predict.rows_of_a_part(100, 50304), 100)

    def test_logits_of_some_positions_have_fewer_rows(self):
        # 16 samples of 77 masked words: one part.
        forward = {**product(1232, 50304, 768), "transpose_a": False, "transpose_b": True,
                   "calls": 4}
        found = predict.as_on_a_gpu({**CASE, "predicted": 77}, [forward])
        self.assertEqual([(one["m"], one["calls"]) for one in found], [(1232, 4)])

    def test_padding_is_multiplied(self):
        d_input = {**product(16384, 768, 50257), "transpose_a": False, "transpose_b": False,
                   "calls": 1}
        self.assertTrue(all(one["k"] == 50304
                            for one in predict.as_on_a_gpu(CASE, [d_input])))

    def test_other_products_stay(self):
        one = {**product(16384, 2304, 768), "transpose_a": False, "transpose_b": True,
               "calls": 48}
        self.assertEqual(predict.as_on_a_gpu(CASE, [one]), [one])


class Predictions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.predictions, cls.tally = predict.predict_all()

    def test_every_kernel_is_in_a_group(self):
        for cases in self.predictions.values():
            for found in cases.values():
                self.assertLessEqual(found["groups"].keys(), set(predict.GROUPS))
                self.assertAlmostEqual(sum(found["groups"].values()),
                                       sum(row.seconds for row in found["rows"]))

    def test_products_are_all_of_those_that_kernels_count(self):
        # FLOPs of products by shape are those of the kernels' costs.
        for title, case in self.tally.items():
            flops = sum(2 * one["calls"] * one["m"] * one["n"] * one["k"]
                        for one in case["products"] if not one["gelu"])
            counted = sum(one["flops"] for one in case["kernels"]
                          if one["label"].removeprefix(predict.PREFIX)
                          in predict.PRODUCT_LABELS)
            self.assertAlmostEqual(flops / counted, 1.0, places=9, msg=title)

    def test_nothing_is_faster_than_its_bound(self):
        for machine, cases in self.predictions.items():
            for title, found in cases.items():
                for row in found["rows"]:
                    # Attention counts hidden scores, which are not computed.
                    most = 2.0 if row.group == "attention" else 1.0
                    self.assertLess(row.share, most, (machine, title, row.name))

    def test_a_faster_gpu_is_faster(self):
        for title, found in self.predictions["A100-SXM-80GB"].items():
            self.assertGreater(found["seconds"],
                               self.predictions["H100-SXM"][title]["seconds"])
            self.assertGreater(self.predictions["H100-SXM"][title]["seconds"],
                               self.predictions["H200"][title]["seconds"])

    def test_what_is_written_is_what_is_predicted(self):
        self.assertEqual(predict.PREDICTIONS.read_text(encoding="utf-8"),
                         predict.json_text(self.predictions, self.tally),
                         "perf/gpu/predict.py --update")
        docs = predict.DOCS.read_text(encoding="utf-8")
        self.assertEqual(docs, predict.docs_with(
            docs, predict.docs_text(self.predictions, self.tally)),
            "perf/gpu/predict.py --update")


class Names(unittest.TestCase):
    def test_drivers_names(self):
        self.assertEqual(machine_of("NVIDIA H100 80GB HBM3").name, "H100-SXM")
        self.assertEqual(machine_of("NVIDIA H200").name, "H200")
        self.assertEqual(machine_of("NVIDIA A100-SXM4-80GB").name, "A100-SXM-80GB")
        self.assertIsNone(machine_of("NVIDIA T4"))
        self.assertEqual(set(MACHINES), {"A100-SXM-40GB", "A100-SXM-80GB", "H100-SXM", "H200"})


if __name__ == "__main__":
    unittest.main()
