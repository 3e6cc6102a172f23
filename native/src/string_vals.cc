#include "string_vals.h"

#include <cstring>

#include "protobuf.h"

namespace tensorwire {
namespace {

constexpr uint8_t kStringVal = 0x42;

// Offsets may be anything until they are checked; unsigned arithmetic wraps where signed would be
// undefined.
inline uint64_t length_of(const int64_t* offsets, size_t i) {
  return static_cast<uint64_t>(offsets[i + 1]) - static_cast<uint64_t>(offsets[i]);
}

// Strings are mostly short. Moving 64 bytes always, where there is room for that on both sides,
// needs no call and no guess about the length.
inline void copy_short(uint8_t* to, const uint8_t* from, size_t size, size_t from_room,
                       size_t to_room) {
  if (size <= 64 && from_room >= 64 && to_room >= 64) {
    std::memcpy(to, from, 64);
  } else {
    std::memcpy(to, from, size);
  }
}

}  // namespace

size_t string_vals_size(const int64_t* offsets, size_t n) {
  size_t total = 0;
  for (size_t i = 0; i < n; i++) {
    const uint64_t length = length_of(offsets, i);
    total += 1 + varint_size(length) + length;
  }
  return total;
}

Outcome write_string_vals(uint8_t* out, size_t room, const uint8_t* data, size_t data_size,
                          const int64_t* offsets, size_t n) {
  uint8_t* p = out;
  uint8_t* end = out + room;
  uint64_t from = n ? static_cast<uint64_t>(offsets[0]) : 0;
  for (size_t i = 0; i < n; i++) {
    const uint64_t to = static_cast<uint64_t>(offsets[i + 1]);
    if (from > to || to > data_size ||
        static_cast<size_t>(end - p) < 1 + varint_size(to - from) + (to - from))
      return {kNoSpace, i, i, static_cast<size_t>(p - out)};
    *p++ = kStringVal;
    p = write_varint(p, to - from);
    copy_short(p, data + from, to - from, data_size - from, static_cast<size_t>(end - p));
    p += to - from;
    from = to;
  }
  return {kOk, n, n, static_cast<size_t>(p - out)};
}

namespace {

// Steps through the string_val fields from `start`; `store(bytes, length, room behind it)` says
// whether there was room.
template <class Store>
Outcome walk(const uint8_t* in, size_t size, size_t start, bool only_strings, Store&& store) {
  Reader r(in, size, start);
  size_t count = 0;
  while (!r.done()) {
    const uint8_t* at = r.at;
    uint64_t length;
    if (*r.at == kStringVal) {
      r.at++;
    } else {
      unsigned field, wire;
      if (!r.tag(field, wire)) return {r.status, r.offset, count, 0};
      if (field != 8 || wire != kLen) {
        if (only_strings) return {kMixedFields, static_cast<size_t>(at - in), count, 0};
        if (!r.skip(field, wire)) return {r.status, r.offset, count, 0};
        continue;
      }
    }
    if (!r.length(length)) return {r.status, r.offset, count, 0};
    if (!store(count, r.at, static_cast<size_t>(length), static_cast<size_t>(r.end - r.at)))
      return {kNoSpace, static_cast<size_t>(at - in), count, 0};
    count++;
    r.at += length;
  }
  return {kOk, size, count, 0};
}

}  // namespace

Outcome read_string_vals(const uint8_t* in, size_t size, size_t start, bool only_strings, size_t n,
                         uint8_t* data, size_t room, int64_t* offsets) {
  size_t used = 0;
  offsets[0] = 0;
  Outcome o = walk(in, size, start, only_strings,
                   [&](size_t i, const uint8_t* from, size_t length, size_t behind) {
                     if (i >= n) return true;
                     if (length > room - used) return false;
                     copy_short(data + used, from, length, behind, room - used);
                     used += length;
                     offsets[i + 1] = static_cast<int64_t>(used);
                     return true;
                   });
  o.used = used;
  return o;
}

Outcome find_string_vals(const uint8_t* in, size_t size, size_t start, bool only_strings, size_t n,
                         int64_t* starts, int64_t* sizes) {
  return walk(in, size, start, only_strings,
              [&](size_t i, const uint8_t* from, size_t length, size_t) {
                if (i < n) {
                  starts[i] = from - in;
                  sizes[i] = static_cast<int64_t>(length);
                }
                return true;
              });
}

size_t string_lengths_size(const int64_t* offsets, size_t n) {
  size_t total = 0;
  for (size_t i = 0; i < n; i++) total += varint_size(length_of(offsets, i));
  return total;
}

Outcome write_string_lengths(uint8_t* out, size_t room, size_t data_size, const int64_t* offsets,
                             size_t n) {
  uint8_t* p = out;
  uint8_t* end = out + room;
  for (size_t i = 0; i < n; i++) {
    const uint64_t length = length_of(offsets, i);
    const uint64_t to = static_cast<uint64_t>(offsets[i + 1]);
    if (to > data_size || length > to || static_cast<size_t>(end - p) < varint_size(length))
      return {kNoSpace, i, i, static_cast<size_t>(p - out)};
    p = write_varint(p, length);
  }
  return {kOk, n, n, static_cast<size_t>(p - out)};
}

Outcome read_string_lengths(const uint8_t* in, size_t size, size_t n, int64_t* offsets) {
  Reader r(in, size);
  uint64_t total = 0;
  offsets[0] = 0;
  for (size_t i = 0; i < n; i++) {
    const uint8_t* at = r.at;
    uint64_t length;
    if (!r.varint(length)) return {r.status, r.offset, i, 0};
    if (length > size || total + length > size)
      return {kTruncated, static_cast<size_t>(at - in), i, 0};
    total += length;
    offsets[i + 1] = static_cast<int64_t>(total);
  }
  const size_t read = static_cast<size_t>(r.at - in);
  if (total > size - read) return {kTruncated, read, n, 0};
  if (total < size - read) return {kTooMany, read + total, n, 0};
  return {kOk, read, n, total};
}

}  // namespace tensorwire
