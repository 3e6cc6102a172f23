// Walking tf.train.Example and SequenceExample: the parts of a message in the order in which they
// stand, by protobuf's rules. What is usual (a key, then its value, one list, one packed run) takes
// the short way; anything else that is legal the long one.
#pragma once
#include <string_view>
#include <vector>

#include "protobuf.h"

namespace tensorwire {

enum FeatureKind : int { kNoList = 0, kBytesList = 1, kFloatList = 2, kInt64List = 3 };
constexpr int kPlaces =
    4;  // of a column only: a kBytesList of which the column has the places, not the strings

struct Span {
  const uint8_t* at;
  const uint8_t* end;
  size_t size() const { return static_cast<size_t>(end - at); }
};

inline Reader reader_of(const uint8_t* begin, Span span) {
  Reader reader(begin, static_cast<size_t>(span.end - begin));
  reader.at = span.at;
  return reader;
}

// Takes the fault of a part over into the whole.
inline bool failed(Reader& whole, const Reader& part) {
  whole.status = part.status;
  whole.offset = part.offset;
  return false;
}

// Reads a length below 128 without a call; the general way for others.
inline bool read_length(Reader& r, uint64_t& size) {
  if (r.at < r.end) {
    const uint8_t low = *r.at;  // once: another thread may change it
    if (low < 0x80 && low <= r.end - r.at - 1) {
      size = low;
      r.at++;
      return true;
    }
  }
  return r.length(size);
}

// The usual case of a message with one field: its tag and a length (of one or two bytes) that takes
// up all the rest. False says only that it is another case.
inline bool is_one_field(Span span, uint8_t tag, Span& inner) {
  const size_t size = span.size();
  if (size < 3 || span.at[0] != tag) return false;
  const uint8_t low = span.at[1], high = span.at[2];
  if (low == size - 2 && low < 0x80) {
    inner = {span.at + 2, span.end};
    return true;
  }
  inner = {span.at + 3, span.end};
  return low >= 0x80 && high < 0x80 && (low & 0x7fu) + (size_t{high} << 7) == size - 3;
}

// Every field `number` that is a message: visit(span). Fields that are not defined are stepped
// over. `undefined` says if there were any.
template <class Visit>
bool each_message(Reader& r, unsigned number, Visit&& visit, bool* undefined = nullptr) {
  const uint8_t usual = static_cast<uint8_t>(number << 3 | kLen);
  while (!r.done()) {
    unsigned field = number, wire = kLen;
    if (*r.at == usual)
      r.at++;
    else if (!r.tag(field, wire))
      return false;
    if (field != number || wire != kLen) {
      if (!r.skip(field, wire)) return false;
      if (undefined) *undefined = true;
      continue;
    }
    uint64_t size;
    if (!read_length(r, size)) return false;
    const Span span{r.at, r.at + size};
    if (!visit(span)) return false;
    r.at = span.end;
  }
  return true;
}

// One entry of a map: its key, and its values, which are one unless somebody wrote it by hand.
struct Entry {
  std::string_view key;
  Span value;
  std::vector<Span> values;  // only when `usual` is false
  bool usual;
};

inline bool read_entry(Reader& whole, Span span, Entry& out) {
  Reader r = reader_of(whole.begin, span);
  uint64_t size;
  out.usual = true;
  if (!r.done() && *r.at == 0x0a) {
    r.at++;
    if (!read_length(r, size)) return failed(whole, r);
    out.key = {reinterpret_cast<const char*>(r.at), static_cast<size_t>(size)};
    r.at += size;
    if (!r.done() && *r.at == 0x12) {
      r.at++;
      if (!read_length(r, size)) return failed(whole, r);
      if (size == static_cast<uint64_t>(r.end - r.at)) {
        out.value = {r.at, r.end};
        return true;
      }
    }
  }
  r.at = span.at;
  out.usual = false;
  out.key = {};
  out.values.clear();
  while (!r.done()) {
    unsigned field, wire;
    if (!r.tag(field, wire)) return failed(whole, r);
    if (wire != kLen || field > 2) {
      if (!r.skip(field, wire)) return failed(whole, r);
      continue;
    }
    if (!r.length(size)) return failed(whole, r);
    if (field == 1)
      out.key = {reinterpret_cast<const char*>(r.at), static_cast<size_t>(size)};
    else
      out.values.push_back({r.at, r.at + size});
    r.at += size;
  }
  return true;
}

// Every list of a Feature: visit(kind, span).
template <class Visit>
bool each_list(Reader& r, Visit&& visit) {
  while (!r.done()) {
    unsigned field, wire;
    if (!r.tag(field, wire)) return false;
    if (wire != kLen || field > kInt64List) {
      if (!r.skip(field, wire)) return false;
      continue;
    }
    uint64_t size;
    if (!read_length(r, size)) return false;
    const Span span{r.at, r.at + size};
    if (!visit(static_cast<int>(field), span)) return false;
    r.at = span.end;
  }
  return true;
}

// Every string of a BytesList: visit(span).
template <class Visit>
bool each_string(Reader& r, Visit&& visit) {
  return each_message(r, 1, visit);
}

// Every run of a FloatList: visit(where, count); the numbers lie there as they are.
template <class Visit>
bool each_float_run(Reader& r, Visit&& visit) {
  while (!r.done()) {
    const uint8_t* start = r.at;
    unsigned field, wire;
    if (!r.tag(field, wire)) return false;
    if (field == 1 && wire == kLen) {
      uint64_t size;
      if (!read_length(r, size)) return false;
      if (size % 4) return r.fail(kBadPacked, start);
      if (!visit(r.at, static_cast<size_t>(size / 4))) return false;
      r.at += size;
    } else if (field == 1 && wire == kFixed32) {
      const uint8_t* number = r.at;
      if (!r.fixed(4) || !visit(number, size_t{1})) return false;
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  return true;
}

// Every run of an Int64List: visit(span of varints). An unpacked number is a run of one.
template <class Visit>
bool each_int_run(Reader& r, Visit&& visit) {
  while (!r.done()) {
    unsigned field, wire;
    if (!r.tag(field, wire)) return false;
    if (field == 1 && wire == kLen) {
      uint64_t size;
      if (!read_length(r, size)) return false;
      const Span span{r.at, r.at + size};
      if (!visit(span)) return false;
      r.at = span.end;
    } else if (field == 1 && wire == kVarint) {
      const uint8_t* number = r.at;
      uint64_t value;
      if (!r.varint(value, false) || !visit(Span{number, r.at})) return false;
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  return true;
}

// The groups of seven bits of a varint, put together.
inline uint64_t join_groups(uint64_t x) {
  x &= 0x7f7f7f7f7f7f7f7fu;
  x = (x & 0x007f007f007f007fu) | ((x & 0x7f007f007f007f00u) >> 1);
  x = (x & 0x00003fff00003fffu) | ((x & 0x3fff00003fff0000u) >> 2);
  return (x & 0x000000000fffffffu) | ((x & 0x0fffffff00000000u) >> 4);
}

// The varints of a run, one after the other: take(value). Up to `limit` memory may be read, also
// behind the run.
template <class Take>
bool each_varint(Reader& whole, Span span, const uint8_t* limit, Take&& take) {
  const uint8_t* at = span.at;
  while (at < span.end) {
    if (limit - at >= 8) {
      uint64_t word;
      __builtin_memcpy(&word, at, 8);
      const uint64_t stops = ~word & 0x8080808080808080u;
      if (stops) {
        const auto length = (__builtin_ctzll(stops) >> 3) + 1;
        if (length > span.end - at) return whole.fail(kTruncated, at);
        take(join_groups(word & (stops ^ (stops - 1))));
        at += length;
        continue;
      }
    }
    Reader r = reader_of(whole.begin, {at, span.end});
    uint64_t value;
    if (!r.varint(value, false)) return failed(whole, r);
    take(value);
    at = r.at;
  }
  return true;
}

}  // namespace tensorwire
