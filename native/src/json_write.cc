// Values to text: rows of numbers (json_digits.h), and lists of lists around them.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "json_digits.h"
#include "json_floats.h"
#include "json_numbers.h"
#include "protobuf.h"

namespace tensorwire {
namespace {

using namespace digits;

constexpr size_t kSlack = 40;  // what may be written past the end of a number

template <class T>
inline T load(const void* from, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(from) + i * sizeof(T), sizeof(T));
  return value;
}

inline uint8_t* write_uint(uint8_t* out, uint64_t value) {
  uint8_t digits[24];
  uint8_t* at = digits + 24;
  while (value >= 100000000) {
    store(at -= 8, spread8(value % 100000000) | kZeros);
    value /= 100000000;
  }
  const uint64_t word = spread8(value);
  const unsigned leading = std::min(std::countr_zero(word | uint64_t{1} << 56) / 8, 7);
  store(out, (word | kZeros) >> 8 * leading);
  const size_t rest = static_cast<size_t>(digits + 24 - at);
  std::memcpy(out + 8 - leading, at, rest);
  return out + 8 - leading + rest;
}

inline uint8_t* write_int(uint8_t* out, int64_t value) {
  *out = '-';
  out += value < 0;
  return write_uint(out, value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
}

// Element i of the values, by kind.
template <JsonKind kKind>
inline uint8_t* write_one(uint8_t* out, const void* values, size_t i, bool bare) {
  if constexpr (kKind == kFloat64)
    return write_float(out, kFloatForms[kKind], load<uint64_t>(values, i), bare);
  else if constexpr (kKind == kFloat32)
    return write_float(out, kFloatForms[kKind], load<uint32_t>(values, i), bare);
  else if constexpr (kKind == kFloat16 || kKind == kBfloat16)
    return write_float(out, kFloatForms[kKind], load<uint16_t>(values, i), bare);
  else if constexpr (is_float(kKind)) {
    const uint8_t bits = load<uint8_t>(values, i);
    return write_float(out, kFloatForms[kKind], bits & float_mask(kKind), bare);
  } else if constexpr (kKind == kInt64)
    return write_int(out, load<int64_t>(values, i));
  else if constexpr (kKind == kInt32)
    return write_int(out, load<int32_t>(values, i));
  else if constexpr (kKind == kInt16)
    return write_int(out, load<int16_t>(values, i));
  else if constexpr (kKind == kInt8)
    return write_int(out, load<int8_t>(values, i));
  else if constexpr (kKind == kInt4)
    return write_int(out, static_cast<int8_t>(load<uint8_t>(values, i) << 4) >> 4);
  else if constexpr (kKind == kInt2)
    return write_int(out, static_cast<int8_t>(load<uint8_t>(values, i) << 6) >> 6);
  else if constexpr (kKind == kUint64)
    return write_uint(out, load<uint64_t>(values, i));
  else if constexpr (kKind == kUint32)
    return write_uint(out, load<uint32_t>(values, i));
  else if constexpr (kKind == kUint16)
    return write_uint(out, load<uint16_t>(values, i));
  else if constexpr (kKind == kUint8)
    return write_uint(out, load<uint8_t>(values, i));
  else if constexpr (kKind == kUint4)
    return write_uint(out, load<uint8_t>(values, i) & 15);
  else if constexpr (kKind == kUint2)
    return write_uint(out, load<uint8_t>(values, i) & 3);
  else
    return load<uint8_t>(values, i) ? put(out, "true", 4) : put(out, "false", 5);
}

// Numbers from, from + 1, ... as one list.
using WriteRow = uint8_t* (*)(uint8_t* out, const void* values, size_t from, size_t to, bool bare,
                              bool spaced);

template <JsonKind kKind>
uint8_t* write_row(uint8_t* out, const void* values, size_t from, size_t to, bool bare,
                   bool spaced) {
  *out++ = '[';
  for (size_t i = from; i < to; i++) {
    out = write_one<kKind>(out, values, i, bare);
    *out++ = ',';
    *out = ' ';
    out += spaced;
  }
  out -= from < to ? 1 + spaced : 0;
  *out++ = ']';
  return out;
}

// The same in three steps over a few numbers at a time: a number's steps wait for each other, those
// of many numbers do not.
template <JsonKind kKind, class Bits>
uint8_t* write_float_row(uint8_t* out, const void* values, size_t from, size_t to, bool bare,
                         bool spaced) {
  constexpr size_t kBlock = 32;
  Short found[kBlock];
  Digits digits[kBlock];
  *out++ = '[';
  for (size_t start = from; start < to; start += kBlock) {
    const size_t n = std::min(kBlock, to - start);
    for (size_t i = 0; i < n; i++) found[i] = shorten(load<Bits>(values, start + i));
    for (size_t i = 0; i < n; i++) digits[i] = spread_of(Bits{}, found[i]);
    for (size_t i = 0; i < n; i++) {
      if (found[i].digits) [[likely]]
        out = place(out, digits[i]);
      else
        out = write_one<kKind>(out, values, start + i, bare);
      *out++ = ',';
      *out = ' ';
      out += spaced;
    }
  }
  out -= from < to ? 1 + spaced : 0;
  *out++ = ']';
  return out;
}

template <JsonKind kKind>
uint8_t* write_scalar(uint8_t* out, const void* values, bool bare) {
  return write_one<kKind>(out, values, 0, bare);
}

struct Writers {
  WriteRow row;
  uint8_t* (*scalar)(uint8_t* out, const void* values, bool bare);
  size_t width, most;  // bytes of an element, and of its text
};

template <JsonKind kKind>
constexpr Writers writers(size_t width, size_t most) {
  return {&write_row<kKind>, &write_scalar<kKind>, width, most};
}

constexpr Writers kWriters[] = {
    {&write_float_row<kFloat64, uint64_t>, &write_scalar<kFloat64>, 8, 24},
    {&write_float_row<kFloat32, uint32_t>, &write_scalar<kFloat32>, 4, 24},
    writers<kFloat16>(2, 24),
    writers<kBfloat16>(2, 24),
    writers<kFloat8E5m2>(1, 24),
    writers<kFloat8E4m3fn>(1, 24),
    writers<kFloat8E4m3fnuz>(1, 24),
    writers<kFloat8E4m3b11fnuz>(1, 24),
    writers<kFloat8E5m2fnuz>(1, 24),
    writers<kFloat8E8m0fnu>(1, 24),
    writers<kFloat8E4m3>(1, 24),
    writers<kFloat8E3m4>(1, 24),
    writers<kFloat6E2m3fn>(1, 24),
    writers<kFloat6E3m2fn>(1, 24),
    writers<kFloat4E2m1fn>(1, 24),
    writers<kInt64>(8, 20),
    writers<kInt32>(4, 11),
    writers<kInt16>(2, 6),
    writers<kInt8>(1, 4),
    writers<kInt4>(1, 2),
    writers<kInt2>(1, 2),
    writers<kUint64>(8, 20),
    writers<kUint32>(4, 10),
    writers<kUint16>(2, 5),
    writers<kUint8>(1, 3),
    writers<kUint4>(1, 2),
    writers<kUint2>(1, 1),
    writers<kBool>(1, 5),
};
static_assert(std::size(kWriters) == kJsonKinds);

// Lists of lists down to the rows of numbers.
struct Nest {
  const Writers& with;
  const void* values;
  const JsonLayout& layout;
  size_t lists[kMaxJsonRank + 1];  // how many there are at each depth
  uint8_t* out;
  bool sound = true;

  void line(size_t depth) {
    if (layout.indent < 0) return;
    *out++ = '\n';
    const size_t spaces = layout.margin + depth * static_cast<size_t>(layout.indent);
    std::memset(out, ' ', spaces);
    out += spaces;
  }

  // List number `index` of its depth; what it holds was counted once, and is not believed to be the
  // same still.
  void write(size_t depth, size_t index) {
    const JsonLevel& level = layout.levels[depth];
    const size_t from =
        level.splits ? static_cast<size_t>(level.splits[index]) : index * level.length;
    const size_t to =
        level.splits ? static_cast<size_t>(level.splits[index + 1]) : from + level.length;
    if (from != next[depth] || to < from || to > lists[depth + 1]) {
      sound = false;
      return;
    }
    next[depth] = to;
    if (depth + 1 == layout.levels.size()) {
      out = with.row(out, values, from, to, layout.bare, layout.indent >= 0);
      return;
    }
    *out++ = '[';
    for (size_t i = from; i < to && sound; i++) {
      if (i > from) *out++ = ',';
      line(depth + 1);
      write(depth + 1, i);
    }
    if (from < to) line(depth);
    *out++ = ']';
  }

  size_t next[kMaxJsonRank] =
      {};  // the first thing that no list has had yet: each is written once at most
};

// How many lists there are at each depth, and things in the last ones; false if that is not `count`
// things.
bool count_lists(const JsonLayout& layout, size_t count, size_t* lists) {
  const size_t depth = layout.levels.size();
  if (depth > kMaxJsonRank) return false;
  lists[0] = 1;
  for (size_t i = 0; i < depth; i++) {
    const JsonLevel& level = layout.levels[i];
    if (level.splits) {
      if (level.size == 0 || level.size - 1 != lists[i]) return false;
      const int64_t last = level.splits[lists[i]];
      if (last < 0) return false;
      lists[i + 1] = static_cast<size_t>(last);
    } else if (__builtin_mul_overflow(lists[i], level.length, &lists[i + 1])) {
      return false;
    }
  }
  return lists[depth] == count;
}

size_t room_for(JsonKind kind, const JsonLayout& layout, const size_t* lists) {
  constexpr uint128 kMost = SIZE_MAX / 4;
  const size_t depth = layout.levels.size();
  uint128 room = kSlack + uint128{lists[depth]} * (kWriters[kind].most + 2);
  for (size_t i = 0; i < depth; i++) {
    const uint128 line =
        layout.indent < 0 ? 0 : 1 + layout.margin + (i + 1) * static_cast<size_t>(layout.indent);
    room += lists[i] * (3 + 2 * line);  // its brackets, a comma, the line that it begins on and the
                                        // one that it ends on
    if (room > kMost) return SIZE_MAX;
  }
  return room > kMost ? SIZE_MAX : static_cast<size_t>(room);
}

}  // namespace

size_t json_width(JsonKind kind) { return kWriters[kind].width; }

size_t json_room(JsonKind kind, size_t count, const JsonLayout& layout) {
  size_t lists[kMaxJsonRank + 1];
  return count_lists(layout, count, lists) ? room_for(kind, layout, lists) : SIZE_MAX;
}

JsonWritten write_json(JsonKind kind, const void* values, size_t count, const JsonLayout& layout,
                       uint8_t* out, size_t room) {
  Nest nest{kWriters[kind], values, layout, {}, out};
  if (!count_lists(layout, count, nest.lists) || room_for(kind, layout, nest.lists) > room)
    return {kOutOfRange, 0};
  if (layout.levels.empty())
    nest.out = nest.with.scalar(out, values, layout.bare);
  else
    nest.write(0, 0);
  for (size_t i = 0; i < layout.levels.size(); i++)
    nest.sound &= nest.next[i] == nest.lists[i + 1];  // what no list has was not written
  if (!nest.sound) return {kOutOfRange, 0};
  return {kOk, static_cast<size_t>(nest.out - out)};
}

}  // namespace tensorwire
