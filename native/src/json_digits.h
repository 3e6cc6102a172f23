// Shortest digits. Let v = c * 2^q be the number, and w = 2^q the distance to its neighbours: every
// decimal nearer than w / 2 is read back as v. Scaled by the power of ten that makes 1 <= w < 10, v
// becomes V, and the digits wanted are those of a multiple of ten near enough to V, of which there
// is at most one, or of the integer nearest to V. V is computed with 64 bits (float32: 36) behind
// the point and cut off, so all comparisons are sure except when both sides agree in nearly all of
// these bits: then, and for the numbers that have their neighbours at two distances (powers of two)
// or fewer bits (subnormals), exact_digits decides.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "json_floats.h"
#include "json_powers.h"

namespace tensorwire::digits {

// digits * 10^exponent
struct Decimal {
  uint64_t digits;
  int exponent;
};

// What Raffaele Giulietti calls Schubfach, for c * 2^q with c < 2^54; with `uneven` the neighbour
// below is at half the distance, with `even` the bounds themselves are read back as v.
inline Decimal exact_digits(uint64_t c, int q, bool uneven, bool even) {
  const int k = (q * 1262611 - (uneven ? 524031 : 0)) >> 22;  // floor(log10(2^q)), or of 3/4 of it
  const int h = q + log2_of_power10(-k) + 1;
  const uint128 g = ((uint128{power_of_10(-k).hi} << 64) | power_of_10(-k).lo) + 1;
  const auto scaled = [&](uint64_t x) {  // 4 times x * 2^q / 10^k, rounded to odd
    x <<= h;
    const uint128 low = uint128{static_cast<uint64_t>(g)} * x,
                  high = uint128{static_cast<uint64_t>(g >> 64)} * x +
                         static_cast<uint64_t>(low >> 64);
    return static_cast<uint64_t>(high >> 64) | (static_cast<uint64_t>(high) > 1);
  };
  const uint64_t lower = scaled(4 * c - 2 + uneven) + !even, middle = scaled(4 * c),
                 upper = scaled(4 * c + 2) - !even;
  const uint64_t s = middle / 4, tens = s / 10;
  if (s >= 10) {
    const bool below = lower <= 40 * tens, above = 40 * tens + 40 <= upper;
    if (below != above) return {tens + above, k + 1};
  }
  const bool below = lower <= 4 * s, above = 4 * s + 4 <= upper;
  if (below != above) return {s + above, k};
  return {s + (middle > 4 * s + 2 || (middle == 4 * s + 2 && (s & 1))), k};
}

// Every four digits, the first one in the lowest byte.
constexpr auto kFours = [] {
  std::array<uint32_t, 10000> table{};
  for (uint32_t x = 0; x < 10000; x++)
    table[x] = x / 1000 | x / 100 % 10 << 8 | x / 10 % 10 << 16 | x % 10 << 24;
  return table;
}();

// Eight digits of x < 10^8.
inline uint64_t spread8(uint64_t x) {
  const uint64_t high = x * 3518437209 >> 45;  // x / 10000
  return kFours[high] | uint64_t{kFours[x - high * 10000]} << 32;
}

constexpr uint64_t kZeros = 0x3030303030303030;

// Zeros at the end of 16 digits.
inline int zeros(uint64_t a, uint64_t b) {
  if (b) [[likely]]
    return std::countl_zero(b) / 8;
  return 8 + std::countl_zero(a) / 8;
}

// Where the point goes, by the number of digits before it (from -3 on): the first eight bytes are
// digits & keep | text | digits >> right << left, and all digits, from the first one on, also stand
// from `at` on.
struct Place {
  uint64_t keep, text;
  uint8_t right, left, at;
};
constexpr int kLeastPoint = -3, kMostPoint = 7;
constexpr auto kPlaces = [] {
  std::array<Place, kMostPoint - kLeastPoint + 1> table{};
  for (int point = kLeastPoint; point <= kMostPoint; point++) {
    Place& place = table[static_cast<size_t>(point - kLeastPoint)];
    if (point > 0) {
      const uint64_t keep = (uint64_t{1} << 8 * point) - 1;
      place = {keep, uint64_t{'.'} << 8 * point, static_cast<uint8_t>(8 * point),
               static_cast<uint8_t>(8 * (point + 1) & 63), 1};
      if (point == 7) place.right = 63, place.left = 0;  // nothing: the eighth byte is the point
    } else {
      const int zeros = 2 - point;
      const uint64_t text = (kZeros & ((uint64_t{1} << 8 * zeros) - 1) & ~uint64_t{0xff00}) |
                            uint64_t{'.'} << 8;  // 0.000
      place = {0, text, 0, static_cast<uint8_t>(8 * zeros), static_cast<uint8_t>(zeros)};
    }
  }
  return table;
}();

inline void store(uint8_t* out, uint64_t word) { std::memcpy(out, &word, 8); }

// 17 digits, trailing zeros among them, as ASCII; `count` without those zeros. For points that are
// not in the table.
[[gnu::noinline]] inline uint8_t* place_far(uint8_t* out, const uint8_t* digits, int count,
                                            int point) {
  if (point > 16 || point < kLeastPoint) {
    *out++ = digits[0];
    if (count > 1) {
      *out++ = '.';
      std::memcpy(out, digits + 1, static_cast<size_t>(count - 1));
      out += count - 1;
    }
    int exponent = point - 1;
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent >= 100) *out++ = static_cast<uint8_t>('0' + exponent / 100);
    *out++ = static_cast<uint8_t>('0' + exponent / 10 % 10);
    *out++ = static_cast<uint8_t>('0' + exponent % 10);
    return out;
  }
  std::memcpy(out, digits,
              static_cast<size_t>(point));  // 8 to 16 digits and at least one behind the point
  out[point] = '.';
  const int behind = std::max(count - point, 1);
  std::memcpy(out + point + 1, digits + point, static_cast<size_t>(behind));
  return out + point + 1 + behind;
}

// What is found of a number: 16 digits and perhaps one more, trailing zeros among them, `point` of
// which are before the point.
struct Short {
  uint64_t digits;
  int point;
  uint8_t more;
  bool negative;
};

// The same digit by digit, the first one in the lowest byte of `a`; `count` of them matter.
struct Digits {
  uint64_t a, b;
  int count, point;
  uint8_t more;
  bool negative;
};

inline Digits spread16(const Short& found) {
  const uint64_t high = found.digits / 100000000, a = spread8(high),
                 b = spread8(found.digits - high * 100000000);
  const int count = 16 - zeros(a, b);
  return {a, b, found.more ? 17 : count, found.point, found.more, found.negative};
}

// Up to 30 bytes are written.
inline uint8_t* place(uint8_t* out, const Digits& digits) {
  *out = '-';
  out += digits.negative;
  const uint64_t a = digits.a | kZeros, b = digits.b | kZeros;
  const uint8_t last = digits.more | '0';
  const unsigned row = static_cast<unsigned>(digits.point - kLeastPoint);
  if (row > kMostPoint - kLeastPoint) [[unlikely]] {
    uint8_t text[17];
    store(text, a), store(text + 8, b), text[16] = last;
    return place_far(out, text, digits.count, digits.point);
  }
  const Place& to = kPlaces[row];
  store(out + to.at, a), store(out + to.at + 8, b), out[to.at + 16] = last;
  store(out, (a & to.keep) | to.text | a >> to.right << to.left);
  return out + to.at + std::max(digits.count, digits.point + 1);
}

[[gnu::noinline]] inline uint8_t* place_decimal(uint8_t* out, Decimal decimal) {
  while (decimal.digits < 10000000000000000) decimal.digits *= 10, decimal.exponent--;
  return place(out, spread16({decimal.digits / 10, decimal.exponent + 17,
                              static_cast<uint8_t>(decimal.digits % 10), false}));
}

inline uint8_t* put(uint8_t* out, const char* text, size_t size) {
  std::memcpy(out, text, size);
  return out + size;
}

// Any float, by exact_digits.
[[gnu::noinline]] inline uint8_t* write_float(uint8_t* out, const FloatForm& form, uint64_t bits,
                                              bool bare) {
  const bool negative = bits & form.sign;
  const uint64_t size = form.sign ? bits & (form.sign - 1) : bits;
  if (size > form.most || (form.nan == form.sign && form.nan && bits == form.nan)) {
    const bool infinite = form.infinity && size == form.infinity;
    if (!bare) *out++ = '"';
    if (infinite && negative) *out++ = '-';
    out = infinite ? put(out, "Infinity", 8) : put(out, "NaN", 3);
    if (!bare) *out++ = '"';
    return out;
  }
  *out = '-';
  out += negative;
  const uint64_t fraction = size & ((uint64_t{1} << form.mantissa) - 1),
                 exponent = size >> form.mantissa;
  if (!form.sign)  // a power of two: both neighbours have another exponent
    return place_decimal(out, exact_digits(1, static_cast<int>(exponent) - form.bias, true, false));
  if (!size) return put(out, "0.0", 3);
  const uint64_t c = exponent ? fraction | uint64_t{1} << form.mantissa : fraction;
  const int q = static_cast<int>(exponent ? exponent : 1) - form.bias - form.mantissa;
  return place_decimal(out, exact_digits(c, q, !fraction && exponent > 1, !(c & 1)));
}

// The fast way: no digits where write_float must find them. `near` is how far from its true value,
// in units of 2^-60, a comparison may be.
inline Short shorten(uint64_t bits) {
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const unsigned exponent = bits >> 52 & 0x7ff;
  if (exponent - 1 >= 0x7fe || !fraction) [[unlikely]]
    return {};
  const int q = static_cast<int>(exponent) - 1075, k = log10_of_power2(q),
            h = q + log2_of_power10(-k) + 1;
  const Power& power = power_of_10(-k);
  const uint64_t c = (fraction | uint64_t{1} << 52) << h;
  const uint128 v = uint128{c} * power.hi + static_cast<uint64_t>(uint128{c} * power.lo >> 64);
  const uint64_t whole = static_cast<uint64_t>(v >> 64), part = static_cast<uint64_t>(v),
                 half = power.hi >> (5 - h);
  const uint64_t tens = whole / 10, last = whole - 10 * tens, below = last << 60 | part >> 4,
                 above = (uint64_t{10} << 60) - below;
  constexpr uint64_t near = 3;
  if (below - half + near <= 2 * near || above - half + near <= 2 * near ||
      part - (uint64_t{1} << 63) + near <= 2 * near) [[unlikely]]
    return {};
  // Of 17 digits the last stands apart. No branches: which of these it is cannot be guessed.
  const uint64_t up = above < half, down = below < half,
                 lone = (last + (part >> 63)) & ((up | down) - 1), first = tens + up;
  const uint64_t is_long = (999999999999999 - first) >> 63;
  return {first + ((9 * first + lone) & (is_long - 1)), k + 16 + static_cast<int>(is_long),
          static_cast<uint8_t>(lone & -is_long), bits >> 63 != 0};
}

inline Short shorten(uint32_t bits) {
  const uint32_t fraction = bits & 0x7fffff;
  const unsigned exponent = bits >> 23 & 0xff;
  if (exponent - 1 >= 0xfe || !fraction) [[unlikely]]
    return {};
  const int q = static_cast<int>(exponent) - 150, k = log10_of_power2(q),
            h = q + log2_of_power10(-k) + 1;
  const uint64_t power = power_of_10(-k).hi;
  const uint128 v = uint128{power} * ((fraction | 0x800000) << h);
  const uint64_t whole = static_cast<uint64_t>(v >> 64), part = static_cast<uint64_t>(v),
                 half = power >> (5 - h);
  const uint64_t last = whole % 10, below = last << 60 | part >> 4,
                 above = (uint64_t{10} << 60) - below;
  constexpr uint64_t near = uint64_t{1} << 25, nearer = uint64_t{1} << 29;
  if (below - half + near <= 2 * near || above - half + near <= 2 * near ||
      part - (uint64_t{1} << 63) + nearer <= 2 * nearer) [[unlikely]]
    return {};
  uint64_t digits = whole + (part >> 63);
  digits = below < half ? whole - last : digits;
  digits = above < half ? whole - last + 10 : digits;
  return {digits, k, 0, bits >> 31 != 0};
}

inline Digits spread_of(uint64_t, const Short& found) { return spread16(found); }

inline Digits spread_of(uint32_t, const Short& found) {  // 9 digits, 8 or 7
  const uint32_t digits = static_cast<uint32_t>(found.digits), top = digits / 100000000;
  const uint64_t a = spread8(digits - top * 100000000);
  const int more = static_cast<int>((99999999 - digits) >> 31),
            less = static_cast<int>((digits - 10000000) >> 31), count = 8 + more - less;
  return {(a << 8 * more | top) >> 8 * less,
          a >> 1 >> (63 - 8 * more),
          count - std::countl_zero(a) / 8,
          found.point + count,
          0,
          found.negative};
}

}  // namespace tensorwire::digits
