// Raw Snappy: a length, then literals and copies of what came before. Whoever frames the blocks
// (record files, LevelDB tables) does so elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

struct SnappyHead {
  int status;
  size_t offset;  // of the fault
  size_t size;    // bytes that the body becomes
  size_t body;    // where it begins
};

// The length at the start, believed only up to `limit` and to what so short an input can become: a
// copy of 64 bytes takes three, and nothing does better. So an allocation of `size` bytes is never
// more than about 22 times the input.
SnappyHead read_snappy_head(const uint8_t* in, size_t size, size_t limit);

struct SnappyOutcome {
  int status;
  size_t offset;  // of the element at fault, or the end
};

// Fills exactly `room` bytes from the elements that begin at `body`, or says why not; then what
// `out` holds means nothing.
SnappyOutcome read_snappy_body(const uint8_t* in, size_t size, size_t body, uint8_t* out,
                               size_t room);

}  // namespace tensorwire
