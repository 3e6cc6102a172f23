// One CRC instruction has a latency of three cycles and a throughput of one, so a single stream
// runs at a third of the machine's speed. We run three streams over three neighbouring blocks and
// join their results: appending n zero bytes to a message is a linear map on its CRC, and for a
// fixed n that map is four table look-ups.
#include "crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define TENSORWIRE_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && \
    (defined(__ARM_FEATURE_CRC32) || defined(__APPLE__) || defined(__linux__))
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <arm_acle.h>
#if defined(__clang__)
#define TENSORWIRE_CRC_TARGET __attribute__((target("crc")))
#else
#define TENSORWIRE_CRC_TARGET __attribute__((target("+crc")))
#endif
#endif

namespace tensorwire {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
using Tables8 = std::array<std::array<uint32_t, 256>, 8>;
using Tables4 = std::array<std::array<uint32_t, 256>, 4>;

constexpr Tables8 make_software_tables() {
  Tables8 t{};
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0);
    t[0][i] = c;
  }
  for (size_t k = 1; k < 8; k++)
    for (size_t i = 0; i < 256; i++) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
  return t;
}
constexpr Tables8 kSoftware = make_software_tables();

inline uint64_t load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

#ifdef TENSORWIRE_CRC_TARGET

// The map "append `zeros` zero bytes", tabulated by byte of the CRC.
Tables4 make_shift(size_t zeros) {
  Tables4 t{};
  for (int k = 0; k < 4; k++) {
    for (uint32_t bit = 0; bit < 8; bit++) {
      uint32_t c = 1u << (8 * k + bit);
      for (size_t i = 0; i < zeros; i++) c = (c >> 8) ^ kSoftware[0][c & 255];
      t[k][1u << bit] = c;
    }
    for (uint32_t i = 1; i < 256; i++)  // the rest is the XOR of its bits
      if (i & (i - 1)) t[k][i] = t[k][i & (i - 1)] ^ t[k][i & (~i + 1)];
  }
  return t;
}

inline uint32_t shift(const Tables4& t, uint32_t crc) {
  return t[0][crc & 255] ^ t[1][(crc >> 8) & 255] ^ t[2][(crc >> 16) & 255] ^ t[3][crc >> 24];
}

TENSORWIRE_CRC_TARGET inline uint32_t step8(uint32_t crc, const uint8_t* p) {
#if defined(__x86_64__)
  return static_cast<uint32_t>(_mm_crc32_u64(crc, load64(p)));
#else
  return __crc32cd(crc, load64(p));
#endif
}

TENSORWIRE_CRC_TARGET inline uint32_t step1(uint32_t crc, uint8_t byte) {
#if defined(__x86_64__)
  return _mm_crc32_u8(crc, byte);
#else
  return __crc32cb(crc, byte);
#endif
}

template <size_t kBlock>
TENSORWIRE_CRC_TARGET uint32_t three_streams(uint32_t crc, const uint8_t*& data, size_t& size) {
  static const Tables4 one = make_shift(kBlock);
  while (size >= 3 * kBlock) {
    uint32_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kBlock; i += 8) {
      a = step8(a, data + i);
      b = step8(b, data + kBlock + i);
      c = step8(c, data + 2 * kBlock + i);
    }
    crc = shift(one, shift(one, a) ^ b) ^ c;
    data += 3 * kBlock;
    size -= 3 * kBlock;
  }
  return crc;
}

TENSORWIRE_CRC_TARGET uint32_t crc32c_hardware(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  crc = three_streams<4096>(crc, data, size);
  crc = three_streams<256>(crc, data, size);
  for (; size >= 8; data += 8, size -= 8) crc = step8(crc, data);
  for (; size; data++, size--) crc = step1(crc, *data);
  return ~crc;
}

TENSORWIRE_CRC_TARGET uint32_t eight(const uint8_t* data) { return ~step8(~0u, data); }

TENSORWIRE_CRC_TARGET void three_messages(const uint8_t* const data[3], const size_t size[3],
                                          uint32_t out[3]) {
  const size_t common = std::min({size[0], size[1], size[2]}) & ~size_t{7};
  uint32_t a = ~0u, b = ~0u, c = ~0u;
  for (size_t i = 0; i < common; i += 8) {
    a = step8(a, data[0] + i);
    b = step8(b, data[1] + i);
    c = step8(c, data[2] + i);
  }
  out[0] = crc32c_hardware(~a, data[0] + common, size[0] - common);
  out[1] = crc32c_hardware(~b, data[1] + common, size[1] - common);
  out[2] = crc32c_hardware(~c, data[2] + common, size[2] - common);
}

bool has_hardware() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2");
#elif defined(__APPLE__)
  return true;  // every arm64 Mac has the CRC instructions
#else
  return getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}

#endif

}  // namespace

uint32_t crc32c_software(uint32_t crc, const uint8_t* data, size_t size) {
  const auto& t = kSoftware;
  crc = ~crc;
  for (; size >= 8; data += 8, size -= 8) {
    const uint64_t v = load64(data) ^ crc;
    crc = t[7][v & 255] ^ t[6][(v >> 8) & 255] ^ t[5][(v >> 16) & 255] ^ t[4][(v >> 24) & 255] ^
          t[3][(v >> 32) & 255] ^ t[2][(v >> 40) & 255] ^ t[1][(v >> 48) & 255] ^ t[0][v >> 56];
  }
  for (; size; data++, size--) crc = (crc >> 8) ^ t[0][(crc ^ *data) & 255];
  return ~crc;
}

uint32_t crc32c(uint32_t crc, const uint8_t* data, size_t size) {
#ifdef TENSORWIRE_CRC_TARGET
  static const bool hardware = has_hardware();
  if (hardware) return crc32c_hardware(crc, data, size);
#endif
  return crc32c_software(crc, data, size);
}

uint32_t crc32c_eight(const uint8_t* data) {
#ifdef TENSORWIRE_CRC_TARGET
  static const bool hardware = has_hardware();
  if (hardware) return eight(data);
#endif
  return crc32c_software(0, data, 8);
}

void crc32c_three(const uint8_t* const data[3], const size_t size[3], uint32_t out[3]) {
#ifdef TENSORWIRE_CRC_TARGET
  static const bool hardware = has_hardware();
  if (hardware) return three_messages(data, size, out);
#endif
  for (int i = 0; i < 3; i++) out[i] = crc32c_software(0, data[i], size[i]);
}

}  // namespace tensorwire
