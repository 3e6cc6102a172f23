// Numbers out of text. A number is digits * 10^exponent, found eight digits at a time and rounded
// once (json_decimal.h); what is rare or near the end of the text goes one character at a time.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "json_decimal.h"
#include "json_numbers.h"
#include "protobuf.h"

namespace tensorwire::scan {

inline uint64_t load64(const uint8_t* p) {  // little-endian hosts
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

constexpr uint64_t kZeros = 0x3030303030303030;
constexpr ptrdiff_t kAhead = 48;  // what the fast way may look at

// Of eight bytes (less '0') the top bit of every one that is no digit, and perhaps of some behind
// the first of those.
inline uint64_t others_than_digits(uint64_t word) {
  return ((word + 0x7676767676767676) | word) & 0x8080808080808080;
}

inline int leading_digits(uint64_t word) {
  const uint64_t others = others_than_digits(word);
  return others ? std::countr_zero(others) / 8 : 8;  // which branches, and that is good: where all
                                                     // are digits, the next step need not wait
}

// The number that eight digits make, the first one in the lowest byte.
inline uint64_t join8(uint64_t word) {
  word = word * 10 + (word >> 8);
  return ((word & 0x000000ff000000ff) * (100 + (uint64_t{1000000} << 32)) +
          (word >> 16 & 0x000000ff000000ff) * (1 + (uint64_t{10000} << 32))) >>
         32;
}

constexpr auto kTens = [] {
  std::array<uint64_t, 14> table{1};
  for (size_t i = 1; i < table.size(); i++) table[i] = 10 * table[i - 1];
  return table;
}();

inline bool is_digit(uint8_t c) { return static_cast<uint8_t>(c - '0') < 10; }

// digits * 10^exponent; with `more`, digits behind these are left out.
struct Decimal {
  uint64_t digits;
  int64_t exponent;
  bool more;
};

// A number (behind its sign) by JSON's grammar, one character at a time.
[[gnu::noinline]] inline int scan_decimal(const uint8_t*& at, const uint8_t* end, Decimal& out) {
  const uint8_t* p = at;
  uint64_t digits = 0;
  int64_t exponent = 0;
  int count = 0;
  bool more = false;
  const auto take = [&](bool behind_point) {
    for (; p < end && is_digit(*p); p++) {
      const unsigned digit = *p - '0';
      if (count < 19) {
        digits = 10 * digits + digit;
        count += digits != 0;
        exponent -= behind_point;
      } else {
        more |= digit != 0;
        exponent += !behind_point;
      }
    }
  };
  if (p == end) return kTruncated;
  if (!is_digit(*p)) return kBadNumber;
  if (*p == '0' && end - p > 1 && is_digit(p[1])) return kBadNumber;
  take(false);
  if (p < end && *p == '.') {
    if (++p == end) return at = p, kTruncated;
    if (!is_digit(*p)) return kBadNumber;
    take(true);
  }
  if (p < end && (*p | 0x20) == 'e') {
    p++;
    const bool negative = p < end && *p == '-';
    p += negative || (p < end && *p == '+');
    if (p == end) return at = p, kTruncated;
    if (!is_digit(*p)) return kBadNumber;
    int64_t value = 0;
    for (; p < end && is_digit(*p); p++)
      value = std::min<int64_t>(10 * value + (*p - '0'), INT64_MAX / 32);
    exponent += negative ? -value : value;
  }
  out = {digits, exponent, more};
  at = p;
  return kOk;
}

// The same for "d.ddd", where nothing longer than 19 digits comes; false for anything else. There
// is always more text behind it.
inline bool scan_short(const uint8_t*& at, Decimal& out) {
  const uint8_t* p = at;
  const unsigned first = *p - unsigned{'0'};
  if (first > 9 || p[1] != '.') return false;
  const uint64_t a = load64(p + 2) ^ kZeros, b = load64(p + 10) ^ kZeros;
  const int in_a = leading_digits(a), in_b = leading_digits(b) & -(in_a >> 3), n = in_a + in_b;
  if (n == 0) return false;
  const uint64_t upper = join8(a << (64 - 8 * in_a)),
                 lower = join8(b << (-8 * in_b & 63) & -uint64_t{in_b > 0});
  uint64_t digits = (first * kTens[in_a] + upper) * kTens[in_b] + lower;
  p += 2 + n;
  int exponent = -n;
  if (n == 16) {
    for (int i = 0; i < 2 && is_digit(*p); i++, p++, exponent--) digits = digits * 10 + (*p - '0');
    if (is_digit(*p)) return false;
  }
  if ((*p | 0x20) == 'e') return false;
  out = {digits, exponent, false};
  at = p;
  return true;
}

// Which of the 16 bytes before a comma are the last n digits.
struct Mask {
  uint64_t a, b;
};
constexpr auto kMasks = [] {
  std::array<Mask, 14> table{};
  for (unsigned n = 0; n < table.size(); n++)
    table[n] = {n > 8 ? ~uint64_t{0} << 8 * (16 - n) : 0, n == 0  ? 0
                                                          : n < 8 ? ~uint64_t{0} << 8 * (8 - n)
                                                                  : ~uint64_t{0}};
  return table;
}();

// The top bit of every byte that is a comma (and of some behind the first one).
inline uint64_t commas(uint64_t word) {
  word ^= 0x2c2c2c2c2c2c2c2c;
  return (word - 0x0101010101010101) & ~word & 0x8080808080808080;
}

// "-d.ddd," of 8 to 15 characters, which is what nearly all float32 are. Where it ends is known
// from the comma alone, so the next number can be begun while this one is read; and the digits lie
// as they are needed, in the 16 bytes before it, which must be there.
inline bool scan_common(const uint8_t*& at, bool& negative, Decimal& out) {
  const uint8_t* p = at;
  const uint64_t comma = commas(load64(p + 8));
  if (!comma) return false;
  const size_t size = 8 + static_cast<size_t>(std::countr_zero(comma)) / 8, sign = *p == '-',
               n = size - 2 - sign;
  const uint64_t first = p[sign] - uint64_t{'0'};
  const uint64_t a = (load64(p + size - 16) ^ kZeros) & kMasks[n].a,
                 b = (load64(p + size - 8) ^ kZeros) & kMasks[n].b;
  if ((others_than_digits(a) | others_than_digits(b)) || first > 9 || p[sign + 1] != '.')
      [[unlikely]]
    return false;
  out = {first * kTens[n] + join8(a) * 100000000 + join8(b), -static_cast<int64_t>(n), false};
  negative = sign;
  at = p + size;
  return true;
}

template <JsonKind kKind>
uint64_t to_float(const Decimal& decimal, const uint8_t* text, const uint8_t* end) {
  uint64_t bits = nearest_float<kKind>(decimal.digits, decimal.exponent);
  if (decimal.more && bits != nearest_float<kKind>(decimal.digits + 1, decimal.exponent))
    bits = kUnsure;
  return bits != kUnsure
             ? bits
             : nearest_float_exact(kFloatForms[kKind], text, static_cast<size_t>(end - text));
}

// A finite float64 to a smaller form; past its largest number its infinity, or one more than that
// where it has none.
inline uint64_t to_small(const FloatForm& form, double value) {
  constexpr int64_t kBias = 1023;
  const uint64_t wide = std::bit_cast<uint64_t>(value), fraction = wide & ((uint64_t{1} << 52) - 1);
  const int64_t exponent = static_cast<int64_t>(wide >> 52 & 0x7ff);
  if (!form.sign) {  // powers of two; the middle between two is one and a half
    const int64_t nearest =
        exponent - kBias + form.bias +
        (fraction > uint64_t{1} << 51 || (fraction == uint64_t{1} << 51 && (exponent & 1)));
    return nearest < 0 ? form.most + 1 : static_cast<uint64_t>(nearest);
  }
  const int64_t biased = exponent - kBias + form.bias,
                drop = 52 - form.mantissa + (biased < 1 ? 1 - biased : 0);
  if (drop > 53 || exponent == 0) return 0;
  const uint64_t c = fraction | uint64_t{1} << 52, kept = c >> drop,
                 rest = c & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
  return (static_cast<uint64_t>(std::max<int64_t>(biased, 1) - 1) << form.mantissa) + kept +
         (rest > half || (rest == half && (kept & 1)));
}

inline bool begins(const uint8_t* at, const uint8_t* end, const char* text, size_t size) {
  return static_cast<size_t>(end - at) >= size && std::memcmp(at, text, size) == 0;
}

// NaN, Infinity, -Infinity, bare or as strings, at anything that is no number; its bits, and `at`
// behind it.
[[gnu::noinline]] inline int scan_nonfinite(const FloatForm& form, const uint8_t*& at,
                                            const uint8_t* end, uint64_t& bits) {
  const uint8_t* p = at;
  const bool quoted = p < end && *p == '"';
  p += quoted;
  const bool negative = p < end && *p == '-';
  if (!negative && begins(p, end, "NaN", 3)) {
    bits = form.nan, p += 3;
  } else if (begins(p + negative, end, "Infinity", 8)) {
    bits = form.infinity | (negative ? form.sign : 0), p += negative + 8;
    if (!form.infinity) return kOutOfRange;
  } else {
    // A text that ends inside of such a word is cut, not wrong.
    for (const char* word : {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""}) {
      const char* from = word + !quoted;
      const size_t left = static_cast<size_t>(end - at);
      if (left < std::strlen(from) && std::memcmp(at, from, left) == 0) return at = end, kTruncated;
    }
    return kBadNumber;
  }
  if (quoted && p == end) return at = end, kTruncated;
  if (quoted && *p++ != '"') return kBadNumber;
  if (!bits) return kOutOfRange;
  at = p;
  return kOk;
}

// One reader for each family of kinds: it scans an element at `at`, and stores it as number `i`. If
// something is wrong, `at` stays, or is the end.
template <JsonKind kKind>
struct FloatReader {
  using Bits = std::conditional_t<kKind == kFloat64, uint64_t, uint32_t>;
  static constexpr size_t kWidth = sizeof(Bits);
  const uint8_t* begin;  // of the text

  int scan(const uint8_t*& at, const uint8_t* end, uint64_t& bits) const {
    const uint8_t* p = at;
    Decimal decimal;
    bool negative;
    if (kKind != kFloat32 || p - begin < 8 || end - p < kAhead ||
        !scan_common(p, negative, decimal)) {
      negative = p < end && *p == '-';
      p += negative;
      if (end - p < kAhead || !scan_short(p, decimal)) [[unlikely]] {
        const int status = scan_decimal(p, end, decimal);
        if (status == kBadNumber) return scan_nonfinite(kFloatForms[kKind], at, end, bits);
        if (status != kOk) return at = end, status;
      }
    }
    bits = to_float<kKind>(decimal, at + negative, p);
    if (bits > kFloatForms[kKind].most) return kOutOfRange;
    bits |= negative ? kFloatForms[kKind].sign : 0;
    at = p;
    return kOk;
  }

  int read(const uint8_t*& at, const uint8_t* end, uint8_t* out, size_t i) const {
    uint64_t bits;
    const int status = scan(at, end, bits);
    const Bits stored = static_cast<Bits>(bits);
    if (status == kOk) [[likely]]
      std::memcpy(out + i * kWidth, &stored, kWidth);
    return status;
  }
};

template <class Bits>
struct SmallFloatReader {
  static constexpr size_t kWidth = sizeof(Bits);
  const FloatForm& form;

  int read(const uint8_t*& at, const uint8_t* end, uint8_t* out, size_t i) const {
    const uint8_t* p = at;
    uint64_t wide, bits;
    if (const int status = FloatReader<kFloat64>{p}.scan(p, end, wide); status != kOk)
      return at = status == kTruncated ? p : at, status;
    const double value = std::bit_cast<double>(wide);
    if (wide << 1 >= kFloatForms[kFloat64].infinity << 1) {
      p = at;
      if (const int status = scan_nonfinite(form, p, end, bits); status != kOk) return status;
    } else {
      bits = to_small(form, value);
      if (bits > form.most || (!form.sign && value < 0)) return kOutOfRange;
      if (std::signbit(value) && (bits || form.nan != form.sign))
        bits |= form.sign;  // some have no -0
    }
    const Bits stored = static_cast<Bits>(bits);
    std::memcpy(out + i * kWidth, &stored, kWidth);
    at = p;
    return kOk;
  }
};

template <class Bits>
struct IntReader {
  static constexpr size_t kWidth = sizeof(Bits);
  uint64_t lowest;  // without its sign
  uint64_t highest;
  Bits mask;

  int read(const uint8_t*& at, const uint8_t* end, uint8_t* out, size_t i) const {
    const uint8_t* p = at;
    const bool negative = p < end && *p == '-';
    p += negative;
    if (p == end) return at = end, kTruncated;
    if (!is_digit(*p) || (*p == '0' && end - p > 1 && is_digit(p[1]))) return kBadNumber;
    uint64_t value = 0;
    bool fits = true;
    for (; p < end && is_digit(*p); p++)
      fits &= !__builtin_mul_overflow(value, uint64_t{10}, &value) &&
              !__builtin_add_overflow(value, uint64_t(*p - '0'), &value);
    if (p < end && (*p == '.' || (*p | 0x20) == 'e')) return kNotInteger;
    if (!fits || value > (negative ? lowest : highest)) return kOutOfRange;
    const Bits stored = static_cast<Bits>(negative ? -value : value) & mask;
    std::memcpy(out + i * kWidth, &stored, kWidth);
    at = p;
    return kOk;
  }
};

struct BoolReader {
  static constexpr size_t kWidth = 1;

  int read(const uint8_t*& at, const uint8_t* end, uint8_t* out, size_t i) const {
    for (const bool value : {false, true}) {
      const char* word = value ? "true" : "false";
      const size_t size = std::strlen(word), left = static_cast<size_t>(end - at);
      if (std::memcmp(at, word, std::min(size, left)) != 0) continue;
      if (left < size) return at = end, kTruncated;
      out[i] = value;
      at += size;
      return kOk;
    }
    return kNotBool;
  }
};

// Calls `work` with the reader of a kind.
template <class Work>
auto with_reader(JsonKind kind, const uint8_t* text, Work&& work) {
  constexpr uint64_t one = 1;
  switch (kind) {
    case kFloat64:
      return work(FloatReader<kFloat64>{text});
    case kFloat32:
      return work(FloatReader<kFloat32>{text});
    case kInt64:
      return work(IntReader<uint64_t>{one << 63, (one << 63) - 1, UINT64_MAX});
    case kInt32:
      return work(IntReader<uint32_t>{one << 31, (one << 31) - 1, UINT32_MAX});
    case kInt16:
      return work(IntReader<uint16_t>{one << 15, (one << 15) - 1, UINT16_MAX});
    case kInt8:
      return work(IntReader<uint8_t>{128, 127, 255});
    case kInt4:
      return work(IntReader<uint8_t>{8, 7, 15});
    case kInt2:
      return work(IntReader<uint8_t>{2, 1, 3});
    case kUint64:
      return work(IntReader<uint64_t>{0, UINT64_MAX, UINT64_MAX});
    case kUint32:
      return work(IntReader<uint32_t>{0, UINT32_MAX, UINT32_MAX});
    case kUint16:
      return work(IntReader<uint16_t>{0, UINT16_MAX, UINT16_MAX});
    case kUint8:
      return work(IntReader<uint8_t>{0, 255, 255});
    case kUint4:
      return work(IntReader<uint8_t>{0, 15, 15});
    case kUint2:
      return work(IntReader<uint8_t>{0, 3, 3});
    case kBool:
      return work(BoolReader{});
    case kFloat16:
    case kBfloat16:
      return work(SmallFloatReader<uint16_t>{kFloatForms[kind]});
    default:
      return work(SmallFloatReader<uint8_t>{kFloatForms[kind]});
  }
}

}  // namespace tensorwire::scan
