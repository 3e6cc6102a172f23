#include "shuffle.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace tensorwire {
namespace {

constexpr size_t kLane = 16;

#if defined(__SSE2__)
using Lane = __m128i;
inline Lane load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store(uint8_t* p, Lane v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
// Every second byte of a and then of b, from the first on or from the second on; and the two ways
// back.
inline Lane even(Lane a, Lane b) {
  const Lane low = _mm_set1_epi16(0xff);
  return _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
}
inline Lane odd(Lane a, Lane b) {
  return _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
}
inline Lane zip_low(Lane a, Lane b) { return _mm_unpacklo_epi8(a, b); }
inline Lane zip_high(Lane a, Lane b) { return _mm_unpackhi_epi8(a, b); }
#elif defined(__ARM_NEON)
using Lane = uint8x16_t;
inline Lane load(const uint8_t* p) { return vld1q_u8(p); }
inline void store(uint8_t* p, Lane v) { vst1q_u8(p, v); }
inline Lane even(Lane a, Lane b) { return vuzp1q_u8(a, b); }
inline Lane odd(Lane a, Lane b) { return vuzp2q_u8(a, b); }
inline Lane zip_low(Lane a, Lane b) { return vzip1q_u8(a, b); }
inline Lane zip_high(Lane a, Lane b) { return vzip2q_u8(a, b); }
#else
struct Lane {
  uint8_t at[kLane];
};
inline Lane load(const uint8_t* p) {
  Lane v;
  std::memcpy(v.at, p, kLane);
  return v;
}
inline void store(uint8_t* p, const Lane& v) { std::memcpy(p, v.at, kLane); }
inline Lane every_second(const Lane& a, const Lane& b, size_t from) {
  Lane v;
  for (size_t i = 0; i < 8; i++) v.at[i] = a.at[2 * i + from], v.at[8 + i] = b.at[2 * i + from];
  return v;
}
inline Lane even(const Lane& a, const Lane& b) { return every_second(a, b, 0); }
inline Lane odd(const Lane& a, const Lane& b) { return every_second(a, b, 1); }
inline Lane zip(const Lane& a, const Lane& b, size_t from) {
  Lane v;
  for (size_t i = 0; i < 8; i++) v.at[2 * i] = a.at[from + i], v.at[2 * i + 1] = b.at[from + i];
  return v;
}
inline Lane zip_low(const Lane& a, const Lane& b) { return zip(a, b, 0); }
inline Lane zip_high(const Lane& a, const Lane& b) { return zip(a, b, 8); }
#endif

// Sixteen items of S bytes are S lanes. Each round sorts the bytes by one more bit of their place
// in the item, so that after log2(S) rounds lane p holds byte p of every item.
template <size_t S>
inline void split(Lane* v) {
  for (size_t width = 1; width < S; width *= 2) {
    Lane next[S];
    for (size_t j = 0; j < S / 2; j++) {
      next[j] = even(v[2 * j], v[2 * j + 1]);
      next[S / 2 + j] = odd(v[2 * j], v[2 * j + 1]);
    }
    for (size_t j = 0; j < S; j++) v[j] = next[j];
  }
}

template <size_t S>
inline void merge(Lane* v) {
  for (size_t width = 1; width < S; width *= 2) {
    Lane next[S];
    for (size_t j = 0; j < S / 2; j++) {
      next[2 * j] = zip_low(v[j], v[S / 2 + j]);
      next[2 * j + 1] = zip_high(v[j], v[S / 2 + j]);
    }
    for (size_t j = 0; j < S; j++) v[j] = next[j];
  }
}

// A tile is so few items that all of it stays in the first cache while the planes are visited one
// after the other.
constexpr size_t kTile = 512;

void split_plain(const uint8_t* in, size_t from, size_t items, size_t size, uint8_t* out) {
  for (size_t tile = from; tile < items; tile += kTile) {
    const size_t stop = std::min(items, tile + kTile);
    for (size_t plane = 0; plane < size; plane++)
      for (size_t i = tile; i < stop; i++) out[plane * items + i] = in[i * size + plane];
  }
}

// A plane as the loops see it: byte i is at bytes[i & mask].
struct Reach {
  const uint8_t* bytes;
  size_t mask;
};

struct Apart {
  const Reach* planes;
  Reach operator()(size_t plane) const { return planes[plane]; }
};
struct Together {
  const uint8_t* in;
  size_t items;
  Reach operator()(size_t plane) const { return {in + plane * items, SIZE_MAX}; }
};

template <class Planes>
void merge_plain(Planes planes, size_t from, size_t items, size_t size, uint8_t* out) {
  for (size_t tile = from; tile < items; tile += kTile) {
    const size_t stop = std::min(items, tile + kTile);
    for (size_t plane = 0; plane < size; plane++) {
      const Reach in = planes(plane);
      for (size_t i = tile; i < stop; i++) out[i * size + plane] = in.bytes[i & in.mask];
    }
  }
}

// The planes of a block are a power of two apart. Where they are many, they compete for the same
// places in the first cache: then a plane's line is written whole, or it would be thrown out
// between its parts.
template <size_t S>
void split_lanes(const uint8_t* in, size_t items, uint8_t* out) {
  constexpr size_t kLine = S < 8 ? kLane : 64;
  size_t i = 0;
  for (; i + kLine <= items; i += kLine) {
    alignas(kLine) uint8_t lines[S][kLine];
    for (size_t part = 0; part < kLine; part += kLane) {
      Lane v[S];
      for (size_t j = 0; j < S; j++) v[j] = load(in + (i + part) * S + j * kLane);
      split<S>(v);
      for (size_t plane = 0; plane < S; plane++) store(lines[plane] + part, v[plane]);
    }
    for (size_t plane = 0; plane < S; plane++)
      std::memcpy(out + plane * items + i, lines[plane], kLine);
  }
  split_plain(in, i, items, S, out);
}

template <size_t S, class Planes>
void merge_lanes(Planes planes, size_t items, uint8_t* out) {
  Reach in[S];
  for (size_t plane = 0; plane < S; plane++) in[plane] = planes(plane);
  size_t i = 0;
  for (; i + kLane <= items; i += kLane) {
    Lane v[S];
    for (size_t plane = 0; plane < S; plane++)
      v[plane] = load(in[plane].bytes + (i & in[plane].mask));
    merge<S>(v);
    for (size_t j = 0; j < S; j++) store(out + i * S + j * kLane, v[j]);
  }
  merge_plain(planes, i, items, S, out);
}

void split_items(const uint8_t* in, size_t item, size_t items, uint8_t* out) {
  switch (item) {
    case 2:
      return split_lanes<2>(in, items, out);
    case 4:
      return split_lanes<4>(in, items, out);
    case 8:
      return split_lanes<8>(in, items, out);
    case 16:
      return split_lanes<16>(in, items, out);
    default:
      return split_plain(in, 0, items, item, out);
  }
}

template <class Planes>
void merge_items(Planes planes, size_t item, size_t items, uint8_t* out) {
  switch (item) {
    case 2:
      return merge_lanes<2>(planes, items, out);
    case 4:
      return merge_lanes<4>(planes, items, out);
    case 8:
      return merge_lanes<8>(planes, items, out);
    case 16:
      return merge_lanes<16>(planes, items, out);
    default:
      return merge_plain(planes, 0, items, item, out);
  }
}

// `work` on the whole items of each block; the rest is copied.
template <class Work>
void each_block(const uint8_t* in, size_t size, size_t item, size_t block, uint8_t* out,
                Work work) {
  for (size_t at = 0; at < size;) {
    const size_t whole = std::min(block, size - at), items = whole / item, done = items * item;
    work(in + at, items, out + at);
    if (done < whole) std::memcpy(out + at + done, in + at + done, whole - done);
    at += whole;
  }
}

}  // namespace

void shuffle(const uint8_t* in, size_t size, size_t item, size_t block, uint8_t* out) {
  each_block(in, size, item, block, out, [item](const uint8_t* from, size_t items, uint8_t* to) {
    split_items(from, item, items, to);
  });
}

void unshuffle(const uint8_t* in, size_t size, size_t item, size_t block, uint8_t* out) {
  each_block(in, size, item, block, out, [item](const uint8_t* from, size_t items, uint8_t* to) {
    merge_items(Together{from, items}, item, items, to);
  });
}

void merge_planes(const Plane* planes, size_t item, size_t items, uint8_t* out) {
  uint8_t same[kMaxItem][kLane];
  Reach in[kMaxItem];
  for (size_t plane = 0; plane < item; plane++) {
    if (planes[plane].single) std::memset(same[plane], planes[plane].bytes[0], kLane);
    in[plane] = planes[plane].single ? Reach{same[plane], 0} : Reach{planes[plane].bytes, SIZE_MAX};
  }
  merge_items(Apart{in}, item, items, out);
}

}  // namespace tensorwire
