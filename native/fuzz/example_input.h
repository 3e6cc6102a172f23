// What the targets for Examples take: `flags | number of columns | a byte for each | messages`,
// each message behind its length (a byte, or 0xff and two bytes).
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "example_decode.h"
#include "fuzz.h"
#include "tfrecord.h"

namespace fuzz {

struct Examples {
  enum Flag : unsigned { kSequence = 1, kFooters = 2, kBadFooter = 4, kHostile = 8 };

  unsigned flags = 0;
  std::vector<tensorwire::Column> columns;
  std::vector<uint8_t> bytes;  // the messages, with a checksum behind each if there is kFooters
  std::vector<int64_t> starts, sizes;

  bool is(Flag flag) const { return flags & flag; }

  Examples(const uint8_t* data, size_t size) {
    static const std::string names[8] = {
        "a", "b", "aa", "ab", "", "c", std::string(130, 'x'), "longer/than/8"};
    static constexpr int64_t lengths[4] = {-1, 0, 1, 3};
    Source source{data, size};
    flags = source.take<uint8_t>();
    std::set<std::pair<bool, std::string>> seen;
    for (unsigned n = source.take<uint8_t>() % 8; n; n--) {
      const unsigned what = source.take<uint8_t>();
      const bool list = is(kSequence) && (what & 16);
      if (!seen.emplace(list, names[what >> 5]).second) continue;
      columns.push_back(
          {names[what >> 5], 1 + static_cast<int>(what % 4 % 3), lengths[what >> 2 & 3], list});
      columns.back().places = what % 4 == 3 && !list && columns.back().length >= 0;
    }
    while (source.left) {
      size_t length = source.take<uint8_t>();
      if (length == 0xff) length = source.take<uint16_t>();
      length = length < source.left ? length : source.left;
      starts.push_back(static_cast<int64_t>(bytes.size()));
      sizes.push_back(static_cast<int64_t>(length));
      bytes.insert(bytes.end(), source.at, source.at + length);
      if (is(kFooters)) {
        Exact<uint8_t> frame(tensorwire::kFrameHeader + length + tensorwire::kFrameFooter);
        tensorwire::write_frame(frame.data(), source.at, length);
        bytes.insert(bytes.end(), frame.data() + frame.size() - 4, frame.data() + frame.size());
      }
      source.at += length;
      source.left -= length;
    }
    if (is(kFooters) && is(kBadFooter) && !bytes.empty()) bytes.back() ^= 1;
  }
};

}  // namespace fuzz
