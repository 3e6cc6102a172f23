// Byte shuffle: all first bytes of a block's items, then all second bytes, and so on. The bytes of
// one plane look alike, so that a compressor finds more in them than in whole numbers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tensorwire {

// Each `block` bytes of `in` (a multiple of `item`, not 0; the last block may be shorter) are
// shuffled alone; what is no whole item at the end stays as it is. `out` has `size` bytes too, and
// is other memory.
void shuffle(const uint8_t* in, size_t size, size_t item, size_t block, uint8_t* out);
void unshuffle(const uint8_t* in, size_t size, size_t item, size_t block, uint8_t* out);

// One byte plane of `items` bytes, or a single byte that stands for all of them.
struct Plane {
  const uint8_t* bytes;
  bool single;
};

// Items whose byte p is from plane p: unshuffle of one block whose planes lie apart.
void merge_planes(const Plane* planes, size_t item, size_t items, uint8_t* out);
constexpr size_t kMaxItem = 256;  // for merge_planes

}  // namespace tensorwire
