// Numbers out of text. A number is digits * 10^exponent, found eight digits at a time and rounded once (json_decimal.h); what is rare or near the
// end of the text goes one character at a time.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>

#include "json_decimal.h"
#include "json_numbers.h"
#include "protobuf.h"

namespace tensorwire {
namespace {

inline uint64_t load64(const uint8_t* p) {  // little-endian hosts
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

constexpr uint64_t kZeros = 0x3030303030303030;
constexpr ptrdiff_t kAhead = 48;  // what the fast way may look at

// Of eight bytes (less '0') the top bit of every one that is no digit, and perhaps of some behind the first of those.
inline uint64_t others_than_digits(uint64_t word) { return ((word + 0x7676767676767676) | word) & 0x8080808080808080; }

inline int leading_digits(uint64_t word) {
  const uint64_t others = others_than_digits(word);
  return others ? std::countr_zero(others) / 8 : 8;  // which branches, and that is good: where all are digits, the next step need not wait
}

// The number that eight digits make, the first one in the lowest byte.
inline uint64_t join8(uint64_t word) {
  word = word * 10 + (word >> 8);
  return ((word & 0x000000ff000000ff) * (100 + (uint64_t{1000000} << 32)) + (word >> 16 & 0x000000ff000000ff) * (1 + (uint64_t{10000} << 32))) >> 32;
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
[[gnu::noinline]] int scan_decimal(const uint8_t*& at, const uint8_t* end, Decimal& out) {
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
    for (; p < end && is_digit(*p); p++) value = std::min<int64_t>(10 * value + (*p - '0'), INT64_MAX / 32);
    exponent += negative ? -value : value;
  }
  out = {digits, exponent, more};
  at = p;
  return kOk;
}

// The same for "d.ddd", where nothing longer than 19 digits comes; false for anything else. There is always more text behind it.
inline bool scan_short(const uint8_t*& at, Decimal& out) {
  const uint8_t* p = at;
  const unsigned first = *p - unsigned{'0'};
  if (first > 9 || p[1] != '.') return false;
  const uint64_t a = load64(p + 2) ^ kZeros, b = load64(p + 10) ^ kZeros;
  const int in_a = leading_digits(a), in_b = leading_digits(b) & -(in_a >> 3), n = in_a + in_b;
  if (n == 0) return false;
  const uint64_t upper = join8(a << (64 - 8 * in_a)), lower = join8(b << (-8 * in_b & 63) & -uint64_t{in_b > 0});
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
    table[n] = {n > 8 ? ~uint64_t{0} << 8 * (16 - n) : 0, n == 0 ? 0 : n < 8 ? ~uint64_t{0} << 8 * (8 - n) : ~uint64_t{0}};
  return table;
}();

// The top bit of every byte that is a comma (and of some behind the first one).
inline uint64_t commas(uint64_t word) {
  word ^= 0x2c2c2c2c2c2c2c2c;
  return (word - 0x0101010101010101) & ~word & 0x8080808080808080;
}

// "-d.ddd," of 8 to 15 characters, which is what nearly all float32 are. Where it ends is known from the comma alone, so the next number can be begun
// while this one is read; and the digits lie as they are needed, in the 16 bytes before it, which must be there.
inline bool scan_common(const uint8_t*& at, bool& negative, Decimal& out) {
  const uint8_t* p = at;
  const uint64_t comma = commas(load64(p + 8));
  if (!comma) return false;
  const size_t size = 8 + static_cast<size_t>(std::countr_zero(comma)) / 8, sign = *p == '-', n = size - 2 - sign;
  const uint64_t first = p[sign] - uint64_t{'0'};
  const uint64_t a = (load64(p + size - 16) ^ kZeros) & kMasks[n].a, b = (load64(p + size - 8) ^ kZeros) & kMasks[n].b;
  if ((others_than_digits(a) | others_than_digits(b)) || first > 9 || p[sign + 1] != '.') [[unlikely]] return false;
  out = {first * kTens[n] + join8(a) * 100000000 + join8(b), -static_cast<int64_t>(n), false};
  negative = sign;
  at = p + size;
  return true;
}

template <JsonKind kKind>
uint64_t to_float(const Decimal& decimal, const uint8_t* text, const uint8_t* end) {
  uint64_t bits = nearest_float<kKind>(decimal.digits, decimal.exponent);
  if (decimal.more && bits != nearest_float<kKind>(decimal.digits + 1, decimal.exponent)) bits = kUnsure;
  return bits != kUnsure ? bits : nearest_float_exact(kFloatForms[kKind], text, static_cast<size_t>(end - text));
}

// A finite float64 to a smaller form; past its largest number its infinity, or one more than that where it has none.
uint64_t to_small(const FloatForm& form, double value) {
  constexpr int64_t kBias = 1023;
  const uint64_t wide = std::bit_cast<uint64_t>(value), fraction = wide & ((uint64_t{1} << 52) - 1);
  const int64_t exponent = static_cast<int64_t>(wide >> 52 & 0x7ff);
  if (!form.sign) {  // powers of two; the middle between two is one and a half
    const int64_t nearest = exponent - kBias + form.bias + (fraction > uint64_t{1} << 51 || (fraction == uint64_t{1} << 51 && (exponent & 1)));
    return nearest < 0 ? form.most + 1 : static_cast<uint64_t>(nearest);
  }
  const int64_t biased = exponent - kBias + form.bias, drop = 52 - form.mantissa + (biased < 1 ? 1 - biased : 0);
  if (drop > 53 || exponent == 0) return 0;
  const uint64_t c = fraction | uint64_t{1} << 52, kept = c >> drop, rest = c & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
  return (static_cast<uint64_t>(std::max<int64_t>(biased, 1) - 1) << form.mantissa) + kept + (rest > half || (rest == half && (kept & 1)));
}

bool begins(const uint8_t* at, const uint8_t* end, const char* text, size_t size) {
  return static_cast<size_t>(end - at) >= size && std::memcmp(at, text, size) == 0;
}

// NaN, Infinity, -Infinity, bare or as strings, at anything that is no number; its bits, and `at` behind it.
[[gnu::noinline]] int scan_nonfinite(const FloatForm& form, const uint8_t*& at, const uint8_t* end, uint64_t& bits) {
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

// One reader for each family of kinds: it scans an element at `at`, and stores it as number `i`. If something is wrong, `at` stays, or is the end.
template <JsonKind kKind>
struct FloatReader {
  using Bits = std::conditional_t<kKind == kFloat64, uint64_t, uint32_t>;
  static constexpr size_t kWidth = sizeof(Bits);
  const uint8_t* begin;  // of the text

  int scan(const uint8_t*& at, const uint8_t* end, uint64_t& bits) const {
    const uint8_t* p = at;
    Decimal decimal;
    bool negative;
    if (kKind != kFloat32 || p - begin < 8 || end - p < kAhead || !scan_common(p, negative, decimal)) {
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
    if (status == kOk) [[likely]] std::memcpy(out + i * kWidth, &stored, kWidth);
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
    if (const int status = FloatReader<kFloat64>{p}.scan(p, end, wide); status != kOk) return at = status == kTruncated ? p : at, status;
    const double value = std::bit_cast<double>(wide);
    if (wide << 1 >= kFloatForms[kFloat64].infinity << 1) {
      p = at;
      if (const int status = scan_nonfinite(form, p, end, bits); status != kOk) return status;
    } else {
      bits = to_small(form, value);
      if (bits > form.most || (!form.sign && value < 0)) return kOutOfRange;
      if (std::signbit(value) && (bits || form.nan != form.sign)) bits |= form.sign;  // some have no -0
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
      fits &= !__builtin_mul_overflow(value, uint64_t{10}, &value) && !__builtin_add_overflow(value, uint64_t(*p - '0'), &value);
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
    case kFloat64: return work(FloatReader<kFloat64>{text});
    case kFloat32: return work(FloatReader<kFloat32>{text});
    case kInt64: return work(IntReader<uint64_t>{one << 63, (one << 63) - 1, UINT64_MAX});
    case kInt32: return work(IntReader<uint32_t>{one << 31, (one << 31) - 1, UINT32_MAX});
    case kInt16: return work(IntReader<uint16_t>{one << 15, (one << 15) - 1, UINT16_MAX});
    case kInt8: return work(IntReader<uint8_t>{128, 127, 255});
    case kInt4: return work(IntReader<uint8_t>{8, 7, 15});
    case kInt2: return work(IntReader<uint8_t>{2, 1, 3});
    case kUint64: return work(IntReader<uint64_t>{0, UINT64_MAX, UINT64_MAX});
    case kUint32: return work(IntReader<uint32_t>{0, UINT32_MAX, UINT32_MAX});
    case kUint16: return work(IntReader<uint16_t>{0, UINT16_MAX, UINT16_MAX});
    case kUint8: return work(IntReader<uint8_t>{0, 255, 255});
    case kUint4: return work(IntReader<uint8_t>{0, 15, 15});
    case kUint2: return work(IntReader<uint8_t>{0, 3, 3});
    case kBool: return work(BoolReader{});
    case kFloat16:
    case kBfloat16: return work(SmallFloatReader<uint16_t>{kFloatForms[kind]});
    default: return work(SmallFloatReader<uint8_t>{kFloatForms[kind]});
  }
}

inline const uint8_t* skip_space(const uint8_t* p, const uint8_t* end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
  return p;
}

constexpr size_t kAny = SIZE_MAX;

// What is known of nested lists, before or after they are read.
struct Lists {
  uint8_t* out;
  size_t room;        // elements
  bool fixed;         // the shape is given
  bool ragged = false;
  size_t most = kAny; // elements
  int leaf = -1;      // how deep the elements are
  size_t lengths[kMaxJsonRank];
  std::vector<int64_t>* splits = nullptr;
  size_t count = 0;   // elements so far
  int deepest = 0;    // lists

  Lists(uint8_t* to, size_t space, bool given) : out(to), room(space), fixed(given) { std::fill_n(lengths, kMaxJsonRank, kAny); }

  int grow(size_t width, size_t text) {  // `text` bytes are left, and an element takes two at least
    if (count == most) return kOverLimit;
    const size_t more = std::min({room + std::max(room, text / 16 + 16), room + text / 2 + 1, most});
    auto* moved = static_cast<uint8_t*>(std::realloc(out, more * width));
    if (!moved) return kNoSpace;
    out = moved;
    room = more;
    return kOk;
  }
};

template <class Reader>
JsonOutcome read_lists(const uint8_t* text, size_t size, size_t start, const Reader& reader, Lists& lists) {
  const uint8_t *p = text + start, *end = text + size;
  size_t counts[kMaxJsonRank];
  int depth = 0;
  const auto fault = [&](int status) { return JsonOutcome{status, static_cast<size_t>(p - text), 0}; };
  const int uneven = lists.fixed ? kWrongShape : kRagged, other_depth = lists.fixed ? kWrongShape : kMixedDepth;
  for (;;) {
    p = skip_space(p, end);
    if (p == end) return fault(kTruncated);
    if (*p == '[') {
      if (depth == kMaxJsonRank) return fault(kTooDeep);
      if (lists.leaf >= 0 && depth >= lists.leaf) return fault(other_depth);
      if (depth && counts[depth - 1] == lists.lengths[depth - 1]) return fault(uneven);
      counts[depth++] = 0;
      lists.deepest = std::max(lists.deepest, depth);
      p = skip_space(p + 1, end);
      if (p == end) return fault(kTruncated);
      if (*p != ']') continue;
    } else {
      if (*p == ']' || *p == ',' || *p == '}') return fault(kBadJson);
      if (lists.leaf < 0 && lists.deepest == depth) lists.leaf = depth;
      if (depth != lists.leaf) return fault(other_depth);
      const size_t most = depth ? lists.lengths[depth - 1] : 1, before = lists.count;
      for (;;) {
        if (lists.count - before == most) return fault(uneven);
        if (lists.count == lists.room)
          if (const int status = lists.fixed ? kNoSpace : lists.grow(Reader::kWidth, static_cast<size_t>(end - p)); status != kOk) return fault(status);
        if (const int status = reader.read(p, end, lists.out, lists.count); status != kOk) [[unlikely]]
          return fault(p < end && *p == '[' ? other_depth : status);
        lists.count++;
        if (!depth) return {kOk, 0, static_cast<size_t>(p - text)};
        if (p == end || (*p != ',' && *p != ']')) p = skip_space(p, end);
        if (p == end) return fault(kTruncated);
        if (*p != ',') break;
        p++;
        if (p < end && *p <= ' ') p = skip_space(p, end);
      }
      if (*p != ']') return fault(kBadJson);
      counts[depth - 1] = lists.count - before;
    }
    while (*p == ']') {  // each list that ends here
      const int level = --depth;
      size_t& length = lists.lengths[level];
      if (lists.ragged && level) {
        std::vector<int64_t>& splits = lists.splits[level];
        if (splits.empty()) splits.push_back(0);
        splits.push_back(splits.back() + static_cast<int64_t>(counts[level]));
      } else if (length == kAny) {
        length = counts[level];
      } else if (length != counts[level]) {
        return fault(uneven);
      }
      p++;
      if (!depth) return {kOk, 0, static_cast<size_t>(p - text)};
      counts[depth - 1]++;
      p = skip_space(p, end);
      if (p == end) return fault(kTruncated);
    }
    if (*p != ',') return fault(kBadJson);
    p++;
  }
}

}  // namespace

JsonOutcome read_json_shape(const uint8_t* text, size_t size, size_t at, JsonKind kind, const size_t* dims, int rank, void* out) {
  size_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  Lists lists(static_cast<uint8_t*>(out), count, true);
  lists.leaf = rank;
  std::copy_n(dims, rank, lists.lengths);
  return with_reader(kind, text, [&](const auto& reader) { return read_lists(text, size, at, reader, lists); });
}

JsonOutcome read_json_any(const uint8_t* text, size_t size, size_t at, JsonKind kind, bool ragged, size_t most, JsonArray& out) {
  Lists lists(nullptr, 0, false);
  lists.ragged = ragged;
  lists.most = most;
  lists.splits = out.splits;
  JsonOutcome outcome;
  try {
    outcome = with_reader(kind, text, [&](const auto& reader) { return read_lists(text, size, at, reader, lists); });
  } catch (const std::bad_alloc&) {
    outcome = {kNoSpace, at, 0};
  }
  out.values = lists.out;
  out.count = lists.count;
  out.rank = lists.leaf < 0 ? lists.deepest : lists.leaf;
  std::copy_n(lists.lengths, out.rank, out.dims);
  return outcome;
}

JsonSkipped skip_json(const uint8_t* text, size_t size, size_t at, int most_depth, bool past_dollars) {
  int depth = 0, deepest = 0;
  for (size_t i = at; i < size; i++) {
    switch (text[i]) {
      case '[':
      case '{':
        if (depth == most_depth) return {kTooDeep, i, deepest, false};
        deepest = std::max(deepest, ++depth);
        break;
      case ']':
      case '}':
        if (--depth <= 0) return {depth ? kBadJson : kOk, i + !depth, deepest, false};
        break;
      case '"':
        if (!past_dollars && i + 1 < size && text[i + 1] == '$') return {kOk, i, deepest, true};
        for (i++; i < size && text[i] != '"'; i++) i += text[i] == '\\';
        break;
      default:
        if (!depth) return {kBadJson, i, deepest, false};
    }
  }
  return {kTruncated, size, deepest, false};
}

}  // namespace tensorwire
