# tests/contracts/listing.py — for tests: instructions as cuobjdump prints them.
import sass


def instructions(*lines):
    """Instructions at the addresses 0, 10, 20 ... (hexadecimal), read from a listing."""
    text = "\t\tFunction : kernel\n" + "".join(
        f"        /*{16 * at:04x}*/  {line} ;   /* 0x000fe200078e00ff */\n"
        for at, line in enumerate(lines))
    return sass.read_functions(text)["kernel"]
