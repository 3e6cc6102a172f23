#include "snappy.h"

#include <array>
#include <cstring>

#include "protobuf.h"

namespace tensorwire {
namespace {

// What a copy's first byte says: its length (bits 0-7), the high bits of its offset (8-10), how
// many bytes of offset follow (11-13). With the table all copies take one path; a branch for each
// kind would be guessed wrong too often.
constexpr std::array<uint16_t, 256> kCopies = [] {
  std::array<uint16_t, 256> table{};
  for (unsigned tag = 0; tag < 256; tag++) {
    const unsigned kind = tag & 3, length = kind == 1 ? 4 + (tag >> 2 & 7) : 1 + (tag >> 2),
                   high = kind == 1 ? tag >> 5 << 8 : 0;
    const unsigned bytes = kind == 3 ? 4 : kind;
    table[tag] = static_cast<uint16_t>(length | high | bytes << 11);
  }
  return table;
}();
constexpr uint32_t kMasks[] = {0, 0xff, 0xffff, 0, 0xffffffff};
// By offset, below 8: what makes a word of the pattern when it is multiplied, and how far the next
// such word is.
constexpr uint64_t kRepeat[] = {0,
                                0x0101010101010101,
                                0x0001000100010001,
                                0x0001000001000001,
                                0x0000000100000001,
                                0x0000010000000001,
                                0x0001000000000001,
                                0x0100000000000001};
constexpr uint8_t kStep[] = {0, 8, 8, 6, 8, 5, 6, 7};

constexpr ptrdiff_t kInSlack = 1 + 64;  // a tag and a literal in wide steps
constexpr ptrdiff_t kOutSlack =
    64 + 16;  // the longest copy, and what its last pattern may write past it

template <class T>
inline T load(const uint8_t* p) {  // little-endian hosts
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Most elements have 32 bytes or fewer: moving so many always costs less than guessing the length
// wrong.
inline void copy_up_to_64(uint8_t* to, const uint8_t* from, size_t length) {
  std::memcpy(to, from, 16);
  std::memcpy(to + 16, from + 16, 16);
  if (length > 32) {
    std::memcpy(to + 32, from + 32, 16);
    std::memcpy(to + 48, from + 48, 16);
  }
}

// A copy that overlaps itself repeats a pattern of fewer than 16 bytes. It is loaded once: to load
// what was stored a moment ago, from the middle of two stores, makes the processor wait.
inline void repeat(uint8_t* to, size_t offset, size_t length) {
  const uint8_t* from = to - offset;
  if (offset < 8) {
    const uint64_t word =
        (load<uint64_t>(from) & ((uint64_t{1} << 8 * offset) - 1)) * kRepeat[offset];
    for (size_t done = 0; done < length; done += kStep[offset]) std::memcpy(to + done, &word, 8);
  } else {
    const uint64_t first = load<uint64_t>(from), last = load<uint64_t>(to - 8);
    for (size_t done = 0; done < length; done += offset) {
      std::memcpy(to + done, &first, 8);
      std::memcpy(to + done + offset - 8, &last, 8);
    }
  }
}

}  // namespace

SnappyHead read_snappy_head(const uint8_t* in, size_t size, size_t limit) {
  Reader reader(in, size);
  uint64_t value;
  if (!reader.varint(value)) return {reader.status, reader.offset, 0, 0};
  const size_t body = static_cast<size_t>(reader.at - in);
  if (value > 0xffffffffu || body > 5) return {kBadVarint, 0, 0, 0};
  if (value > limit) return {kOverLimit, 0, 0, 0};
  if (value > (size - body + 2) / 3 * 64) return {kTruncated, 0, 0, 0};
  return {kOk, body, static_cast<size_t>(value), body};
}

SnappyOutcome read_snappy_body(const uint8_t* in, size_t size, size_t body, uint8_t* out,
                               size_t room) {
  const uint8_t* at = in + body;
  const uint8_t* const end = in + size;
  uint8_t* to = out;
  uint8_t* const stop = out + room;

  // Far from both ends, in wide moves that may run past their element. Whatever is odd is left to
  // the loop below, which decides alone what is valid and says what is not.
  while (end - at >= kInSlack && stop - to >= kOutSlack) {
    const unsigned tag = *at;
    if ((tag & 3) == 0) {
      const size_t length = (tag >> 2) + 1;
      if (length <= 60) {
        copy_up_to_64(to, at + 1, length);
        at += 1 + length;
        to += length;
        continue;
      }
      const size_t bytes = length - 60,
                   rest = size_t{load<uint32_t>(at + 1) & (0xffffffffu >> (32 - 8 * bytes))} + 1;
      if (rest > static_cast<size_t>(end - at) - 1 - bytes || rest > static_cast<size_t>(stop - to))
        break;
      std::memcpy(to, at + 1 + bytes, rest);
      at += 1 + bytes + rest;
      to += rest;
      continue;
    }
    const unsigned entry = kCopies[tag], bytes = entry >> 11;
    const size_t length = entry & 0xff,
                 offset = (entry & 0x700) + size_t{load<uint32_t>(at + 1) & kMasks[bytes]};
    if (offset - 1 >= static_cast<size_t>(to - out)) break;  // 0 wraps
    if (offset >= 16) {
      copy_up_to_64(to, to - offset, length);
    } else {
      repeat(to, offset, length);
    }
    at += 1 + bytes;
    to += length;
  }

  while (at != end) {
    const uint8_t* const start = at;
    const auto fault = [&](int why) { return SnappyOutcome{why, static_cast<size_t>(start - in)}; };
    const unsigned tag = *at++;
    const unsigned inline_length = (tag >> 2) + 1, entry = kCopies[tag];
    const bool literal = (tag & 3) == 0;
    const size_t bytes = literal ? (inline_length > 60 ? inline_length - 60 : 0) : entry >> 11;
    if (static_cast<size_t>(end - at) < bytes) return fault(kTruncated);
    uint32_t number = 0;
    if (bytes) std::memcpy(&number, at, bytes);
    at += bytes;
    if (literal) {
      const size_t length = bytes ? size_t{number} + 1 : inline_length;
      if (length > static_cast<size_t>(end - at)) return fault(kTruncated);
      if (length > static_cast<size_t>(stop - to)) return fault(kOverrun);
      std::memcpy(to, at, length);
      at += length;
      to += length;
    } else {
      const size_t length = entry & 0xff, offset = (entry & 0x700) + size_t{number};
      if (offset == 0 || offset > static_cast<size_t>(to - out)) return fault(kBadCopy);
      if (length > static_cast<size_t>(stop - to)) return fault(kOverrun);
      for (uint8_t* const last = to + length; to != last; to++) *to = *(to - offset);
    }
  }
  return {to == stop ? kOk : kTruncated, size};
}

}  // namespace tensorwire
