# tests/style/vendor_headers.py — each library behind one module: its headers appear in that
# module's files alone, so that another library, or none, can take its place.
import re

import source_tree
from layers import INCLUDE

# header pattern -> modules (src/<module>, or apps) that may include it
OWNERS = [
    (r"mpi\.h", ["comm"]),
    (r"nccl\.h", ["comm"]),
    (r"cublas\w*\.h|cudnn\w*(\.h|/.*)|cutlass/.*|cute/.*|cusparse\w*\.h", ["kernels"]),
    (r"cuda\w*\.(h|hpp)|nvtx3?/.*|nvToolsExt\.h", ["base"]),
    (r"dnnl\w*\.(h|hpp)|oneapi/dnnl/.*", ["kernels"]),
    (r"cblas\.h|lapacke?\.h|f77blas\.h|openblas\w*\.h", ["kernels"]),
    (r"KokkosBlas\w*\.hpp|KokkosBatched\w*\.hpp|KokkosKernels\w*\.hpp", ["kernels"]),
    (r"hdf5\.h|hdf5_hl\.h|H5\w*\.h", ["io"]),
    (r"xxhash\.h|zlib\.h|zstd\w*\.h", ["io"]),
    (r"yaml-cpp/.*", ["config"]),
    (r"pcre2\w*\.h", ["data"]),
    (r"Random123/.*", ["base"]),
    (r"CLI/.*|CLI11\.hpp", ["apps"]),
]
# header pattern -> the one file that may include it: a build without the library leaves that
# file out.
ONE_FILE = [(r"sentencepiece\w*\.h", "src/data/sentence_piece_library.cpp")]
# Heavy to parse: sources may include it, headers not.
SOURCES_ONLY = re.compile(r"nlohmann/.*")


def check(root):
    found = []
    for name in source_tree.cpp_files(root, "src", "apps"):
        parts = name.split("/")
        module = "apps" if parts[0] == "apps" else parts[1]
        text = source_tree.text_of(root, name)
        for match in INCLUDE.finditer(source_tree.blank(text, literals=False)):
            header = match.group(2)
            where = f"{name}:{source_tree.line_of(text, match.start(2))}"
            for pattern, owners in OWNERS:
                if re.fullmatch(pattern, header) and module not in owners:
                    found.append(f"{where}: <{header}> belongs to {' and '.join(owners)}, "
                                 f"not to {module}")
            for pattern, file in ONE_FILE:
                if re.fullmatch(pattern, header) and name != file:
                    found.append(f"{where}: <{header}> belongs to {file} alone")
            if name.endswith(".hpp") and SOURCES_ONLY.fullmatch(header) and \
                    header != "nlohmann/json_fwd.hpp":
                found.append(f"{where}: <{header}> only in sources (a header may have "
                             "<nlohmann/json_fwd.hpp>)")
    return found
