// Frames. The input says what stands in a file: whole frames, frames with a flipped bit, headers
// alone, and plain bytes. What is found there is judged again with the slow checksum.
#include "tfrecord.h"

#include <algorithm>

#include "crc32c.h"
#include "fuzz.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

bool holds(const uint8_t* data,
           size_t size) {  // whether the masked checksum stands behind the data
  const uint32_t crc = crc32c_software(0, data, size),
                 masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  return std::memcmp(&masked, data + size, 4) == 0;
}

uint64_t length_at(const uint8_t* head) {
  uint64_t length;
  std::memcpy(&length, head, 8);
  return length;
}

// Parts: `what | size | bytes`. What is 0: a frame; 1: a frame with one bit flipped; 2: a header
// with any length; else: plain bytes.
std::vector<uint8_t> stream(fuzz::Source source) {
  std::vector<uint8_t> out;
  while (source.left) {
    const unsigned what = source.take<uint8_t>(), bit = what >> 2;
    size_t size = source.take<uint8_t>();
    const uint64_t length = what % 4 == 2 ? source.take<uint64_t>() : 0;
    size = std::min(size, source.left);
    fuzz::Exact<uint8_t> frame(kFrameHeader + size + kFrameFooter);
    CHECK(write_frame(frame.data(), source.at, size) == frame.data() + frame.size());
    CHECK(holds(frame.data(), 8) && length_at(frame.data()) == size &&
          holds(frame.data() + kFrameHeader, size));
    CHECK(size == 0 || std::memcmp(frame.data() + kFrameHeader, source.at, size) == 0);
    if (what % 4 == 1) frame[bit * frame.size() / 64] ^= static_cast<uint8_t>(1u << bit % 8);
    if (what % 4 == 2) {
      std::memcpy(frame.data(), &length, 8);
      const uint32_t crc = crc32c_software(0, frame.data(), 8),
                     masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
      std::memcpy(frame.data() + 8, &masked, 4);
    }
    if (what % 4 == 3)
      out.insert(out.end(), source.at, source.at + size);
    else
      out.insert(out.end(), frame.data(),
                 frame.data() + (what % 4 == 2 ? kFrameHeader : frame.size()));
    source.at += size;
    source.left -= size;
  }
  return out;
}

void check_scan(const fuzz::Exact<uint8_t>& file, size_t start, bool check, uint64_t longest,
                size_t most) {
  std::vector<int64_t> starts, sizes;
  const FrameScan scan =
      scan_frames(file.data(), file.size(), start, check, longest, most, starts, sizes);
  CHECK(starts.size() == sizes.size() && starts.size() <= most && scan.offset >= start &&
        scan.offset <= file.size());
  size_t at = start;
  for (size_t i = 0; i < starts.size(); i++) {
    const size_t size = static_cast<size_t>(sizes[i]);
    CHECK(static_cast<size_t>(starts[i]) == at + kFrameHeader && size <= longest &&
          length_at(file.data() + at) == size && holds(file.data() + at, 8));
    CHECK(size <= file.size() - at - kFrameHeader - kFrameFooter);
    CHECK(!check || holds(file.data() + at + kFrameHeader, size));
    at += kFrameHeader + size + kFrameFooter;
  }
  CHECK(scan.offset == at);
  const uint8_t* head = file.data() + at;
  const size_t left = file.size() - at;
  const bool header = left >= kFrameHeader && holds(head, 8);
  const bool whole = header && left >= kFrameHeader + kFrameFooter &&
                     length_at(head) <= left - kFrameHeader - kFrameFooter;
  switch (scan.status) {
    case kOk:
      CHECK(left == 0 || starts.size() == most);
      break;
    case kTruncated:
      CHECK(left < kFrameHeader || (header && !whole));
      break;
    case kBadLengthCrc:
      CHECK(left >= kFrameHeader && !header);
      break;
    case kTooLong:
      CHECK(header && length_at(head) > longest);
      break;
    default:
      CHECK(scan.status == kBadDataCrc && check && whole &&
            !holds(head + kFrameHeader, length_at(head)));
  }
}

void check_find(const fuzz::Exact<uint8_t>& file, size_t start, uint64_t longest) {
  const size_t found = find_frame(file.data(), file.size(), start, longest);
  size_t at = std::min(start, file.size());
  for (; file.size() - at >= kFrameHeader; at++)
    if (length_at(file.data() + at) <= longest && holds(file.data() + at, 8)) break;
  CHECK(found == (file.size() - at >= kFrameHeader ? at : file.size()));
}

void check_chain(const fuzz::Exact<uint8_t>& file, size_t start, ChainSearch search) {
  const ChainSearch before = search;
  const size_t found = find_chain(file.data(), file.size(), start, search);
  uint64_t left = before.checks;
  size_t at = std::min(start, file.size());
  const auto header = [&](size_t place) {
    return file.size() - place >= kFrameHeader && holds(file.data() + place, 8);
  };
  for (; at < before.stop && file.size() - at >= kFrameHeader; at++) {
    const uint64_t length = length_at(file.data() + at), around = kFrameHeader + kFrameFooter;
    if (length > before.longest || !header(at) || before.total - at < around ||
        length > before.total - at - around)
      continue;
    const bool seen =
        length <= UINT32_MAX &&
        at + around + length + (file.size() == before.total ? 0 : kFrameHeader) <= file.size();
    if (!seen) {
      if (at < before.near) continue;
      break;
    }
    const size_t end = at + around + length;
    if (!header(at + kFrameHeader) && (end == before.total || header(end))) break;
    const uint64_t cost = std::max(length, before.guess);
    if (cost > left) continue;
    if (holds(file.data() + at + kFrameHeader, length)) break;
    left -= cost;
  }
  CHECK(found == (at < before.stop && file.size() - at >= kFrameHeader ? at : file.size()) &&
        search.checks == left);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const size_t most = source.take<uint8_t>() % 8, from = source.take<uint16_t>();
  const uint64_t longest = source.take<uint64_t>();
  const std::vector<uint8_t> bytes = stream(source);
  for (const fuzz::Exact<uint8_t>& file :
       {fuzz::Exact<uint8_t>(bytes.data(), bytes.size()), fuzz::Exact<uint8_t>(data, size)}) {
    for (const uint64_t limit : {longest, UINT64_MAX}) {
      for (const size_t start : {size_t{0}, std::min<size_t>(from, file.size())}) {
        for (const bool check : {true, false})
          check_scan(file, start, check, limit, most ? most : SIZE_MAX);
        check_find(file, start, limit);
        for (const uint64_t more : {uint64_t{0}, uint64_t{from % 64}, UINT64_MAX - file.size()})
          for (const uint64_t stop : {uint64_t{from} * 2, UINT64_MAX})
            for (const uint64_t checks : {uint64_t{0}, longest % 512, UINT64_MAX})
              check_chain(file, start,
                          {limit, stop, file.size() + more, from / 2u, checks, most * 8});
      }
      check_find(file, SIZE_MAX - from % 16, limit);  // past any end
    }
  }
  return 0;
}
