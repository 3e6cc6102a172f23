// read_snappy_head and read_snappy_body: the same as a decoder that takes one byte at a time, and
// never a byte outside what it was given. More or less room than the block needs lets both the wide
// loop and the careful one meet every element.
#include "snappy.h"

#include <vector>

#include "fuzz.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

// False for anything that is not a whole, sound block.
bool plain(const uint8_t* in, size_t size, size_t at, size_t room, std::vector<uint8_t>& out) {
  const auto number = [&](size_t bytes, uint64_t& value) {
    if (bytes > size - at) return false;
    value = 0;
    for (size_t i = 0; i < bytes; i++) value |= uint64_t{in[at++]} << 8 * i;
    return true;
  };
  while (at < size) {
    const unsigned tag = in[at++];
    uint64_t length = (tag >> 2) + 1, offset = 0;
    switch (tag & 3) {
      case 0:
        if (length > 60) {
          if (!number(length - 60, length)) return false;
          length++;
        }
        if (length > size - at || length > room - out.size()) return false;
        for (; length; length--) out.push_back(in[at++]);
        continue;
      case 1:
        if (!number(1, offset)) return false;
        length = 4 + (tag >> 2 & 7);
        offset |= tag >> 5 << 8;
        break;
      case 2:
        if (!number(2, offset)) return false;
        break;
      default:
        if (!number(4, offset)) return false;
    }
    if (offset == 0 || offset > out.size() || length > room - out.size()) return false;
    for (; length; length--) out.push_back(out[out.size() - offset]);
  }
  return out.size() == room;
}

void check_body(const uint8_t* data, size_t size, size_t body, size_t room) {
  std::vector<uint8_t> expected;
  const bool sound = plain(data, size, body, room, expected);
  fuzz::Exact<uint8_t> out(room), other(room, 0x5a);
  const SnappyOutcome o = read_snappy_body(data, size, body, out.data(), room);
  const SnappyOutcome again = read_snappy_body(data, size, body, other.data(), room);
  CHECK(o.status == again.status && o.offset == again.offset && o.offset >= body &&
        o.offset <= size);
  CHECK(sound == (o.status == kOk));
  if (sound) {
    CHECK(o.offset == size);
    CHECK(room == 0 || (std::memcmp(out.data(), expected.data(), room) == 0 &&
                        std::memcmp(other.data(), expected.data(), room) == 0));
  } else {
    CHECK(o.status == kTruncated || o.status == kBadCopy || o.status == kOverrun);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const SnappyHead head = read_snappy_head(data, size, SIZE_MAX);
  if (head.status != kOk) {
    CHECK(head.status == kTruncated || head.status == kBadVarint);
    CHECK(head.offset <= size);
    return 0;
  }
  CHECK(head.body >= 1 && head.body <= 5 && head.body <= size && head.size <= 22 * size + 64);
  CHECK(head.size == 0 || read_snappy_head(data, size, head.size - 1).status == kOverLimit);
  CHECK(read_snappy_head(data, size, head.size).status == kOk);
  check_body(data, size, head.body, head.size);
  check_body(data, size, head.body, head.size / 2);
  check_body(data, size, head.body,
             head.size + 100);  // the end of the input comes before the end of the output
  return 0;
}
