// The CRC instructions agree with the table, and one pass with two, for any start, size, alignment
// and split. Input: `size u16 | split u16 | start u32 | alignment u8 | seed u64`. The bytes are
// made from the seed: no branch depends on them, and the three streams begin at 12 KiB, where a
// fuzzer would hardly get by itself.
#include "crc32c.h"

#include "fuzz.h"

using namespace tensorwire;

namespace {

uint32_t bit_by_bit(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  for (size_t i = 0; i < size; i++) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const size_t n = source.take<uint16_t>() % 26000, split = source.take<uint16_t>() % (n + 1);
  const uint32_t start = source.take<uint32_t>();
  const size_t shift = source.take<uint8_t>() % 16;
  fuzz::Exact<uint8_t> bytes(shift + n);
  uint8_t* p = bytes.data() + shift;
  uint64_t word = source.take<uint64_t>();
  for (size_t i = 0; i < n; i += 8, word = word * 6364136223846793005u + 1442695040888963407u)
    std::memcpy(p + i, &word, n - i < 8 ? n - i : 8);

  const uint32_t whole = crc32c(start, p, n);
  CHECK(whole == crc32c_software(start, p, n));
  CHECK(whole == crc32c(crc32c(start, p, split), p + split, n - split));
  CHECK(whole == crc32c_software(crc32c(start, p, split), p + split, n - split));
  if (n <= 1024) CHECK(whole == bit_by_bit(start, p, n));
  return 0;
}
