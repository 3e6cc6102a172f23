"""How fast the machine is now. It is shared, and there are minutes in which everything takes twice
as long, CPU time too.
"""

import struct
import time

USUAL = 0.080
"""Seconds of CPU that the loop below takes on the machine on which our promises were measured."""


def slowness():
    """How many times as long as there a plain loop takes here, now; at least 1."""
    data, number = bytes(64), struct.Struct("<Q")

    def once():
        start = time.process_time()
        for at in range(1_000_000):
            number.unpack_from(data, at & 31)
        return time.process_time() - start

    return max(1.0, min(once() for _ in range(3)) / USUAL)
