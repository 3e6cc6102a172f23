#include "typed.h"

#include <algorithm>
#include <cstring>

#include "protobuf.h"

namespace tensorwire {
namespace {

struct Sink {
  bool strict;
  size_t width;
  int64_t lowest;
  uint64_t highest;
  uint8_t* out;
  size_t room;
  size_t count = 0;

  bool put(uint64_t value) {
    if (strict) {
      const int64_t as_signed = static_cast<int64_t>(value);
      // Signed types have lowest < 0: there the varint is a two's complement int64, else a plain
      // uint64.
      if (lowest < 0 ? (as_signed < lowest || as_signed > static_cast<int64_t>(highest))
                     : value > highest)
        return false;
    }
    if (count < room) std::memcpy(out + count * width, &value, width);  // little-endian hosts
    count++;
    return true;
  }
};

bool read_run(Reader& r, const uint8_t* stop, bool is_bool, Sink& sink) {
  uint64_t value;
  const uint8_t* outer = r.end;
  r.end = stop;
  while (!r.done()) {
    const uint8_t* at = r.at;
    if (!r.varint(value, sink.strict)) return false;
    if (is_bool && !sink.strict) value = value != 0;
    if (!sink.put(value)) return r.fail(is_bool ? kBadBool : kOutOfRange, at);
  }
  r.end = outer;
  return true;
}

}  // namespace

TypedOutcome read_typed(const uint8_t* in, size_t size, unsigned field, bool strict, size_t width,
                        int64_t lowest, uint64_t highest, uint8_t* out, size_t room) {
  Reader r(in, size);
  Sink sink{strict, width, lowest, highest, out, room};
  const bool is_bool = field == 11;
  const size_t fixed = (field == 5 || field == 9) ? 4 : (field == 6 || field == 12) ? 8 : 0;
  const auto result = [&] { return TypedOutcome{r.status, r.offset, std::min(sink.count, room)}; };
  while (!r.done()) {
    unsigned seen, wire;
    uint64_t length;
    if (!r.tag(seen, wire)) return result();
    if (seen != field) {
      if (!r.skip(seen, wire)) return result();
    } else if (wire == kLen) {
      if (!r.length(length)) return result();
      if (field == 18) sink.count = 0;  // bytes: the last one wins
      if (fixed || field == 18) {
        const size_t item = fixed ? fixed : 1;
        const size_t n = std::min<size_t>(length / item, room - std::min(sink.count, room));
        if (n) std::memcpy(out + sink.count * item, r.at, n * item);
        sink.count += length / item;
        r.at += length;
      } else if (!read_run(r, r.at + length, is_bool, sink)) {
        return result();
      }
    } else if (fixed && wire == (fixed == 4 ? kFixed32 : kFixed64)) {
      if (!r.fixed(fixed)) return result();
      if (sink.count < room) std::memcpy(out + sink.count * fixed, r.at - fixed, fixed);
      sink.count++;
    } else if (!fixed && wire == kVarint && field != 18) {
      const uint8_t* at = r.at;
      uint64_t value;
      if (!r.varint(value, strict)) return result();
      if (is_bool && !strict) value = value != 0;
      if (!sink.put(value)) {
        r.fail(is_bool ? kBadBool : kOutOfRange, at);
        return result();
      }
    } else if (!r.skip(seen, wire)) {
      return result();
    }
  }
  return result();
}

}  // namespace tensorwire
