# tests/style/needs_kokkos.py ROOT — prints the headers of src/ and apps/ whose includes reach
# Kokkos_Core.hpp, separated by semicolons, for CMakeLists.txt here.
import sys

import direct_includes
import source_tree


def headers(root):
    seen = {}
    return [name for name in source_tree.cpp_files(root, "src", "apps")
            if name.endswith(".hpp")
            and "Kokkos_Core.hpp" in direct_includes.closure(root, name, seen)]


if __name__ == "__main__":
    print(";".join(headers(sys.argv[1])), end="")
