# tests/style/test_checks.py — each style check on a small tree with one seeded violation: a
# check that cannot fail is none. And on the same tree without it, where nothing is found.
import importlib
import tempfile
import unittest
from pathlib import Path

CMAKE = "set(TRIREME_MODULES base comm\n    kernels io step)\n"
BASE = {
    "CMakeLists.txt": CMAKE,
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 90\n",
    "src/base/CMakeLists.txt": "trireme_add_module(base SOURCES a.cpp)\n",
    "src/comm/CMakeLists.txt": "trireme_add_module(comm SOURCES a.cpp USES base)\n",
    "src/kernels/CMakeLists.txt":
        "trireme_add_module(kernels SOURCES a.cpp\n  USES comm  # and base through it\n)\n",
    "src/base/types.hpp":
        "// base/types.hpp — types.\n#ifndef TRIREME_BASE_TYPES_HPP_\n"
        "#define TRIREME_BASE_TYPES_HPP_\n\n#include <vector>\n\n"
        "inline std::vector<int> none() { return {}; }\n\n#endif  // TRIREME_BASE_TYPES_HPP_\n",
    "src/comm/grid.hpp":
        "// comm/grid.hpp — ranks.\n#ifndef TRIREME_COMM_GRID_HPP_\n"
        "#define TRIREME_COMM_GRID_HPP_\n\n#include \"base/types.hpp\"\n\n"
        "inline int size(const std::vector<int>& ranks) { return int(ranks.size()); }\n\n"
        "#endif  // TRIREME_COMM_GRID_HPP_\n",
    "src/kernels/add.cpp":
        "// kernels/add.cpp — a kernel.\n#include \"base/types.hpp\"\n"
        "#include \"comm/grid.hpp\"\n\n"
        "void add() { launch(exec, \"trireme::kernels::add\", 1, f); }\n",
}


class StyleChecks(unittest.TestCase):
    def found(self, check, **changes):
        """What a check says of the small tree with these files added or replaced."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**BASE, **changes.get("files", {})}.items():
                path = Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return importlib.import_module(check).check(root)

    def expect(self, check, files, *words):
        lines = self.found(check, files=files)
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])

    def source(self, body, name="src/kernels/more.cpp"):
        return {name: f"// {name.removeprefix('src/')} — more.\n{body}\n"}

    def header(self, body, name="src/kernels/more.hpp"):
        guard = "TRIREME_" + name.removeprefix("src/").upper()
        guard = guard.replace("/", "_").replace(".", "_") + "_"
        return {name: f"// {name.removeprefix('src/')} — more.\n#ifndef {guard}\n"
                      f"#define {guard}\n\n{body}\n\n#endif  // {guard}\n"}

    def test_clean_tree_has_no_findings(self):
        for check in ("layers", "vendor_headers", "kernel_labels", "text_rules",
                      "direct_includes", "formatting", "documentation", "plurals",
                      "function_length", "top_comments"):
            self.assertEqual(self.found(check), [], check)

    # layers
    def test_upward_include(self):
        self.expect("layers", self.source('#include "kernels/x.hpp"', "src/comm/up.cpp") |
                    {"src/kernels/x.hpp": ""}, "src/comm/up.cpp:2", "higher layer")

    def test_mutual_include(self):
        # comm uses base already; base using comm closes the circle
        self.expect("layers", self.source('#include "comm/grid.hpp"', "src/base/up.cpp"),
                    "src/base/up.cpp:2", "higher layer")

    def test_include_that_cmake_does_not_declare(self):
        self.expect("layers", self.source('#include "comm/grid.hpp"', "src/io/a.cpp"),
                    "no comm under USES")

    def test_include_without_module(self):
        self.expect("layers", self.source('#include "add.hpp"'), "does not name its module")

    def test_include_of_nothing(self):
        self.expect("layers", self.source('#include "base/nowhere.hpp"'), "does not exist")

    def test_unknown_module(self):
        self.expect("layers", self.source("", "src/other/a.cpp"), "TRIREME_MODULES")

    def test_apps_are_on_top(self):
        self.expect("layers", self.source('#include "apps/a.hpp"'), "only apps may")

    def test_include_in_a_comment_is_none(self):
        self.assertEqual([], self.found("layers", files=self.source(
            '/*\n#include "step/x.hpp"\n*/', "src/comm/a.cpp")))

    def test_declared_use_without_an_include(self):
        self.expect("layers", {"src/io/CMakeLists.txt":
                               "trireme_add_module(io SOURCES a.cpp USES base)\n"},
                    "src/io/CMakeLists.txt:1", "USES names base")

    # the picture of the modules
    def test_picture_is_what_cmake_says(self):
        import module_map
        self.expect("module_map", {}, "docs/developer/modules.svg:1")
        with tempfile.TemporaryDirectory() as root:
            for name, text in BASE.items():
                path = Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            drawn = module_map.picture(root)
        self.assertEqual(self.found("module_map", files={module_map.PICTURE: drawn}), [])
        self.expect("module_map", {module_map.PICTURE: drawn, "CMakeLists.txt":
                                   CMAKE.replace("step", "step strange")}, "strange")

    # vendor headers
    def test_vendor_headers(self):
        for header, owner in (("mpi.h", "comm"), ("hdf5.h", "io"), ("H5Apublic.h", "io"),
                              ("yaml-cpp/yaml.h", "config"), ("dnnl.hpp", "kernels"),
                              ("cublasLt.h", "kernels"), ("cuda_runtime.h", "base"),
                              ("nccl.h", "comm"), ("CLI/CLI.hpp", "apps")):
            self.expect("vendor_headers", self.source(f"#include <{header}>", "src/step/a.cpp"),
                        "src/step/a.cpp:2", header, owner)
            owned = f"src/{owner}/a.cpp" if owner != "apps" else "apps/a.cpp"
            self.assertEqual([], self.found(
                "vendor_headers", files=self.source(f"#include <{header}>", owned)))

    def test_header_of_one_file(self):
        header = "#include <sentencepiece_processor.h>"
        for name in ("src/data/a.cpp", "src/step/a.cpp"):
            self.expect("vendor_headers", self.source(header, name), f"{name}:2",
                        "src/data/sentence_piece_library.cpp alone")
        self.assertEqual([], self.found("vendor_headers", files=self.source(
            header, "src/data/sentence_piece_library.cpp")))

    def test_heavy_json_header(self):
        self.expect("vendor_headers", self.header("#include <nlohmann/json.hpp>"),
                    "only in sources")

    # kernel labels
    def test_label_twice(self):
        self.expect("kernel_labels",
                    self.source('void f() { launch(e, "trireme::kernels::add", 1, g); }'),
                    "also at src/kernels/add.cpp:5")

    def test_label_of_another_form(self):
        self.expect("kernel_labels", self.source('void f() { launch_teams(e, "add", 1, 2, g); }'),
                    "not of the form")

    def test_label_of_another_module(self):
        self.expect("kernel_labels", self.source('void f() { launch(e, "trireme::io::f", 1, g); }'),
                    "another module")

    def test_label_that_is_no_literal(self):
        self.expect("kernel_labels", self.source("void f() { launch(e, name(1, 2), 1, g); }"),
                    "no literal label")

    def test_label_twice_beside_its_cost(self):
        self.expect("kernel_labels", self.source(
            'void f() { launch(e, {"trireme::kernels::add", {.bytes = b(x, y)}}, 1, g); }'),
                    "also at src/kernels/add.cpp:5")

    def test_cost_without_a_label(self):
        self.expect("kernel_labels", self.source("void f() { launch(e, {name, cost}, 1, g); }"),
                    "no literal label")

    def test_kernels_that_a_launch_chooses_from(self):
        self.expect("kernel_labels", self.source(
            'void f() { const Kernels kernels{{"trireme::kernels::f", c}, {name, c}}; }'),
                    "no literal label as argument 2")

    def test_direct_kokkos_launch(self):
        self.expect("kernel_labels", self.source("void f() { Kokkos::parallel_for(10, g); }"),
                    "no literal label as argument 1")

    def test_labels_that_are_well(self):
        self.assertEqual([], self.found("kernel_labels", files=self.source(
            'void f() {\n  launch_rows(e(a, "x,y"), "trireme::kernels::f[odd]", 1, g);\n'
            "  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, 3), g);\n}")))

    # text
    def test_banner(self):
        self.expect("text_rules", {"src/base/a.cpp": "#include <vector>\n"}, "first line")

    def test_include_guard(self):
        text = BASE["src/base/types.hpp"].replace("BASE_TYPES", "TYPES")
        lines = self.found("text_rules", files={"src/base/types.hpp": text})
        self.assertEqual(len(lines), 3, lines)
        self.assertIn("TRIREME_BASE_TYPES_HPP_", lines[0])

    def test_exit_and_assert(self):
        for call in ("assert(x)", "exit(1)", "std::exit(1)", "::_exit(1)", "std::abort()"):
            self.expect("text_rules", self.source(f"void f() {{ {call}; }}"),
                        "src/kernels/more.cpp:2", "TRIREME_REQUIRE")

    def test_words_that_only_look_like_exit(self):
        self.assertEqual([], self.found("text_rules", files=self.source(
            'static_assert(true);  // exit(1)\nauto s = "assert(0)";\nvoid g() { on_exit(1); }')))

    def test_swallowed_exception(self):
        self.expect("text_rules", self.source("void f() { try { g(); } catch (...) {} }"), "catch")

    def test_compute_type_above_the_step(self):
        above = "src/check/more.cpp"
        for text in ("Model<float> model;", "f<T, bf16>();", "f(DType::float32);",
                     "TRIREME_FOR_EACH_REAL(X)"):
            self.expect("text_rules", self.source(text, above), above, "step::Replica")
            for below in ("src/kernels/more.cpp", "src/check/selftest_more.cpp"):
                self.assertEqual([], self.found("text_rules", files=self.source(text, below)))
        self.assertEqual([], self.found("text_rules", files=self.source(
            'auto mask = batch.field<float>("loss_mask");  // Model<float>', above)))

    def test_test_that_no_entry_runs(self):
        name = "tests/unit/base/test_layer_norm.cpp"
        for text in ("TEST(LayerNorm, A) {}", "TEST_F(LayerNormOf, A) {}",
                     "INSTANTIATE_TEST_SUITE_P(, LayerNorm, Values(1));",
                     "INSTANTIATE_TEST_SUITE_P(LayerNorm, Norm, Values(1));"):
            self.assertEqual([], self.found("text_rules", files=self.source(text, name)), text)
        for text in ("TEST(Layernorm, A) {}", "TYPED_TEST(Norm, A) {}",
                     "INSTANTIATE_TEST_SUITE_P(\n    Norm, LayerNorm,\n    Values(1));"):
            self.expect("text_rules", self.source(text, name), "begin with LayerNorm")
        self.expect("text_rules", self.source("TEST_P(LayerNorm, A) {}", name), "never run")

    def test_long_line_blank_tab_and_missing_newline(self):
        self.expect("text_rules", self.source("// " + "x" * 88), "91 columns")
        self.expect("text_rules", self.source("int a; "), "blanks")
        self.expect("text_rules", self.source("\tint a;"), "tab")
        self.expect("text_rules", {"tools/a.sh": "# a.sh — a\ntrue"}, "no newline")

    def test_long_line_in_a_raw_string(self):
        self.assertEqual([], self.found("text_rules", files=self.source(
            'auto s = R"(' + "x" * 90 + '\n)";')))

    def test_paths_and_hosts_of_a_machine(self):
        for text in ("/home/" + "ann/x", "/tmp/" + "w/b", "https://pypi" + ".org/simple",
                     "deb http://deb.debian" + ".org/debian"):
            self.expect("text_rules", {"docs/a.md": f"see {text}\n"}, "docs/a.md:1")

    # includes
    def test_number_with_a_plural(self):
        for text in ('"{} ranks"', '"of {:,} micro-batches"', '"{0} "\n    "steps"'):
            self.expect("plurals", self.source(f"void f() {{ say({text}, n); }}"),
                        "more.cpp:2", "format_plural")
        self.expect("plurals", self.source('void f() { say("rank{}", n == 1 ? "" : "s"); }'),
                    "format_plural")

    def test_plurals_that_are_well(self):
        self.assertEqual([], self.found("plurals", files=self.source(
            '// "{} ranks"\nvoid f() { say("{} is {:.1f} tokens, {{}} steps", a, "} ranks"); }')))

    # comments at the top
    def test_long_source_without_its_why(self):
        body = "\n" * 160
        for top in ("— see more.hpp.", "— more. It is long.", "— more, et al. (Fig. 1, alg. 2)"):
            self.expect("top_comments", {"src/kernels/more.cpp": f"// kernels/more.cpp {top}\n"
                                                                 f"\n// One. Two. Three.{body}"},
                        "162 lines", "of 3 sentences")
        why = "// kernels/more.cpp — see more.hpp.\n//\n// One.\n// Two: a, b.\n// Three.\n"
        self.assertEqual([], self.found("top_comments", files={"src/kernels/more.cpp":
                                                               why + body}))

    # length of functions
    LONG = "\n" * 70

    def test_long_function(self):
        for head in ("void f(int a) {", "template <class T, class U = std::pair<int, int>>\n"
                     "requires(sizeof(T) > 2)\nauto A<T>::f() const noexcept -> int {",
                     "A::A(int a) : a_{a}, b_(f({1, 2})), c_{} {", "A::~A() {",
                     "bool A::operator()(int a) const {", "bool operator<(A a, A b) {",
                     "A& operator=(A&&) {", "A::operator bool() const {",
                     "struct B : A { int x = 3; std::vector<int> y{1}; B() : A{} {",
                     "namespace n { namespace { class C final : public D<int> { void f() {",
                     "extern \"C\" { int f(int (*g)(int), int x = {}) {",
                     "KOKKOS_INLINE_FUNCTION void f(const T (&a)[3]) {",
                     "TEST(A, b) {", "auto t = R\"({ \" )\"; [[nodiscard]] int f() try {",
                     "int a = 1'000'000; char c = '{'; void f(A a = A{}, int b = g(1)) {",
                     "enum class E { a, b = f(1) }; struct F f(struct F a) {",
                     "#define M(x) \\\n  void x() {\nvoid f() {",
                     "std::vector<int> v = {f(1), f(2)}; A b{f(1)}; void f() { if (x) {}"):
            lines = self.found("function_length", files=self.source(
                head + self.LONG + "}" * (head.count("{") - head.count("}"))))
            self.assertEqual(len(lines), 1, (head, lines))
            self.assertIn("60 at most", lines[0])

    def test_lambdas_belong_to_their_function(self):
        self.expect("function_length", self.source(
            "void f() {\n  launch(e, n, KOKKOS_LAMBDA(const int i) {" + "\n" * 40 +
            "  });\n  auto g = [&](int a) -> int {" + "\n" * 40 + "};\n}\nvoid g() {\n}"),
            "f() has 84 lines")

    def test_what_is_long_and_no_function(self):
        for text in ("const std::vector<int> table = {f(1),", "class A {", "namespace {",
                     "const Table kTable{g(1),", "enum class E {", "struct A : B<int> {",
                     "using F = void(int);\nconst A a = [] { return 1; }() + B{"):
            closing = "};" if "namespace" not in text else "}"
            self.assertEqual([], self.found("function_length", files=self.source(
                text + self.LONG + closing)), text)

    def test_header_that_leans_on_others(self):
        for body, header in (("std::optional<int> f();", "optional"),
                             ("KOKKOS_FUNCTION void f();", "Kokkos_Core.hpp"),
                             ("inline void f() { fmt::print(\"\"); }", "fmt/format.h")):
            self.expect("direct_includes", self.header(body), header)

    def test_own_module_without_its_header(self):
        tensor = {"CMakeLists.txt": CMAKE.replace("comm\n", "tensor comm\n"),
                  "src/tensor/CMakeLists.txt": "trireme_add_module(tensor SOURCES a.cpp)\n"}
        arena = self.header("class Arena final {\n};", "src/tensor/arena.hpp")
        for text in ("void f() { comm::Grid grid; }", "void f() { trireme::comm::size(a); }"):
            self.expect("direct_includes", self.source(text), "more.cpp:2", "header of comm")
            self.assertEqual([], self.found("direct_includes", files=self.source(
                '#include "comm/grid.hpp"\n' + text)))
            self.assertEqual([], self.found("direct_includes", files=self.source(
                '#include "kernels/more.hpp"\n' + text) | self.header(
                    '#include "comm/grid.hpp"')))
        self.expect("direct_includes", self.source("void f(Arena& a);") | tensor | arena,
                    "uses Arena", "tensor/arena.hpp")
        for text in ('#include "tensor/arena.hpp"\nvoid f(Arena& a);', "// Arena",
                     "void f(other::Arena& a);", 'auto s = "comm::Grid";', "Arena_t a;"):
            self.assertEqual([], self.found("direct_includes", files=self.source(text) |
                                            tensor | arena), text)

    def test_include_through_an_own_header(self):
        self.assertEqual([], self.found("direct_includes", files=self.header(
            '#include "comm/grid.hpp"\n\nstd::vector<int> f();')))

    # documentation
    PAGES = {
        "README.md": "# A\n[b](docs/b.md#one-two), [web](https://a.example/x#y), `[c](d)`\n",
        "docs/b.md": "# B\n[a](../README.md) [dir](../docs)\n\n## One: `two`!\n",
        "apps/run.cpp": "// apps/run.cpp — run.\n"
                        'void f() { line.add_command("run", ""); c.add_flag("--fast", x);\n'
                        '  c.add_option(\n    "--deck", y); }\n',
        "apps/shared.cpp": "// apps/shared.cpp — shared.\n"
                           'void g(App& c) { c.add_option("--set", "change"); }\n',
        "src/config/keys.cpp": '// config/keys.cpp — keys.\nauto k = "run.steps";\n'}

    def page(self, text, name="docs/developer/p.md"):
        return self.PAGES | {name: f"# P\n\n{text}\n"}

    def test_pages_that_are_well(self):
        text = ("`src/base/types.hpp`, `src/{base,comm}/CMakeLists.txt`, `none()`, `run.steps`\n"
                "```sh\ntrireme run deck.yaml --fast --set run.steps=1 | less --sort\n```\n"
                "[one](../b.md#one-two) [p](#p)\n<!-- [x](gone.md) -->\n"
                "```cpp\nclass Mine {};\nTEST(Suite, DoesIt) { App app(\"Text\"); }\n```")
        self.assertEqual([], self.found("documentation", files=self.page(text)))

    def test_wrong_pages(self):
        for text, words in (
                ("see [that](../c.md)", "there is no docs/c.md"),
                ("![picture](p.svg)", "there is no docs/developer/p.svg"),
                ("[b](../b.md#one)", "no heading #one"),
                ("[[b](../b.md) and\n more](../../outside.md)", "outside.md"),
                ("`src/base/gone.hpp`", "there is no src/base/gone.hpp"),
                ("`src/{base,gone}/CMakeLists.txt`", "there is no src/gone/CMakeLists.txt"),
                ("```\ntrireme run \\\n  --slow\n```", "trireme run has no option --slow"),
                ("`trireme walk --fast`", "no command 'walk'"),
                ("`trireme run --set run.step=1`", "no key run.step"),
                ("`run.stepz`", "no key run.stepz"),
                ("`base::nothing()`", "no nothing() in the code"),
                ("```cpp\nGoneType gone;  // NotLookedAt\n```", "no GoneType in the code"),
                ("- a\n\n  ```cpp\n  GoneType gone;\n  ```", "no GoneType in the code")):
            lines = self.found("documentation", files=self.page(text))
            self.assertEqual(len(lines), 1, (text, lines))
            self.assertIn("docs/developer/p.md:", lines[0])
            self.assertIn(words, lines[0])

    # format
    def test_format(self):
        self.expect("formatting", self.source("int   a ;"), "src/kernels/more.cpp:2")


if __name__ == "__main__":
    unittest.main()
