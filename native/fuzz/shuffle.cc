// shuffle, unshuffle and merge_planes: what plain loops say, the way back, and never a byte outside
// what they were given. Input: `size u16 | item u8 | items in a block u16 | alignment u8 | planes
// that are one byte u64 | seed u64`. The bytes are made from the seed: no branch depends on them.
#include "shuffle.h"

#include <vector>

#include "fuzz.h"

using namespace tensorwire;

namespace {

std::vector<uint8_t> plain(const uint8_t* in, size_t size, size_t item, size_t block) {
  std::vector<uint8_t> out(in, in + size);
  for (size_t at = 0; at < size; at += block) {
    const size_t items = (size - at < block ? size - at : block) / item;
    for (size_t i = 0; i < items; i++)
      for (size_t plane = 0; plane < item; plane++)
        out[at + plane * items + i] = in[at + i * item + plane];
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const size_t n = source.take<uint16_t>() % 6000, item = 1 + source.take<uint8_t>() % 40;
  const size_t block = item * (1 + source.take<uint16_t>() % 700),
               shift = source.take<uint8_t>() % 32;
  const uint64_t singles = source.take<uint64_t>();
  uint64_t word = source.take<uint64_t>();
  fuzz::Exact<uint8_t> bytes(shift + n), shuffled(n), back(n, 0x5a);
  uint8_t* in = bytes.data() + shift;
  for (size_t i = 0; i < n; i += 8, word = word * 6364136223846793005u + 1442695040888963407u)
    std::memcpy(in + i, &word, n - i < 8 ? n - i : 8);

  const std::vector<uint8_t> expected = plain(in, n, item, block);
  shuffle(in, n, item, block, shuffled.data());
  CHECK(n == 0 || std::memcmp(shuffled.data(), expected.data(), n) == 0);
  unshuffle(shuffled.data(), n, item, block, back.data());
  CHECK(n == 0 || std::memcmp(back.data(), in, n) == 0);

  const size_t items = n / item;
  if (items == 0) return 0;
  std::vector<fuzz::Exact<uint8_t>> owned;  // each plane in memory of its own
  std::vector<Plane> planes;
  for (size_t plane = 0; plane < item; plane++) {
    const bool single = singles >> plane % 64 & 1;
    owned.emplace_back(in + plane * items, single ? 1 : items);
    planes.push_back({owned.back().data(), single});
  }
  fuzz::Exact<uint8_t> merged(items * item);
  merge_planes(planes.data(), item, items, merged.data());
  for (size_t i = 0; i < items; i++)
    for (size_t plane = 0; plane < item; plane++)
      CHECK(merged[i * item + plane] == planes[plane].bytes[planes[plane].single ? 0 : i]);
  return 0;
}
