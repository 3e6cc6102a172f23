#include "packed_varints.h"

#include "example_walk.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tensorwire {
namespace {

// One bit for each of 64 bytes: whether a varint ends there.
inline uint64_t ends_of_varints(const uint8_t* at) {
  uint64_t more = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; i++)
    more |= uint64_t{static_cast<uint32_t>(
                _mm_movemask_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * i))))}
            << (16 * i);
#else
  for (int i = 0; i < 8; i++) {
    uint64_t word;
    __builtin_memcpy(&word, at + 8 * i, 8);
    more |= ((word & 0x8080808080808080u) * 0x0002040810204081u >> 56) << (8 * i);
  }
#endif
  return ~more;
}

// Where the numbers end is found for 64 bytes at once, so that reading one need not wait for the
// length of the one before.
template <class Join>
ptrdiff_t read(const uint8_t* at, const uint8_t* end, const uint8_t* limit, int64_t* to,
               size_t room, Join join) {
  const int64_t* const begin = to;
  const int64_t* const last = to + room;
  while (at < end) {
    if (limit - at < 72) return -1;
    uint64_t ends = ends_of_varints(at);
    if (end - at < 64) ends &= (uint64_t{1} << (end - at)) - 1;
    int start = 0;
    for (; ends; ends &= ends - 1) {
      const int stop = __builtin_ctzll(ends), length = stop - start + 1;
      if (length > 8 || to == last) return -1;
      uint64_t word;
      __builtin_memcpy(&word, at + start, 8);
      *to++ = static_cast<int64_t>(join(word & (~uint64_t{0} >> (64 - 8 * length))));
      start = stop + 1;
    }
    if (!start) return -1;
    at += start;
  }
  return to - begin;
}

#if defined(__x86_64__)
// As assembly, so that only this needs BMI2 and not the whole function.
uint64_t extract_groups(uint64_t word) {
  const uint64_t mask = 0x7f7f7f7f7f7f7f7fu;
  uint64_t out;
  __asm__("pext %2, %1, %0" : "=r"(out) : "r"(word), "r"(mask));
  return out;
}
#endif

}  // namespace

ptrdiff_t packed_varints(const uint8_t* at, const uint8_t* end, const uint8_t* limit, int64_t* to,
                         size_t room) {
  if (end - at <= 8 && limit - at >= 8 && end > at) {  // one short number, most often
    uint64_t word;
    __builtin_memcpy(&word, at, 8);
    const uint64_t stops = ~word & 0x8080808080808080u;
    if (stops && (__builtin_ctzll(stops) >> 3) + 1 == end - at) {
      if (!room) return -1;
      *to = static_cast<int64_t>(join_groups(word & (stops ^ (stops - 1))));
      return 1;
    }
  }
#if defined(__x86_64__)
  static const bool bmi2 = __builtin_cpu_supports("bmi2");
  if (bmi2)
    return read(at, end, limit, to, room, [](uint64_t word) { return extract_groups(word); });
#endif
  return read(at, end, limit, to, room, [](uint64_t word) { return join_groups(word); });
}

}  // namespace tensorwire
