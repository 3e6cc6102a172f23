#include "tfrecord.h"

#include <algorithm>
#include <cstring>

#include "crc32c.h"
#include "protobuf.h"

namespace tensorwire {
namespace {

// Checksums are masked, because a checksum over data that holds checksums tells little.
uint32_t mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

uint32_t masked(const uint8_t* data, size_t size) { return mask(crc32c(0, data, size)); }

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

bool is_header(const uint8_t* head) { return mask(crc32c_eight(head)) == load<uint32_t>(head + 8); }

}  // namespace

size_t first_bad_data(const uint8_t* data, const int64_t* starts, const int64_t* sizes,
                      size_t count) {
  size_t i = 0;
  for (; i + 3 <= count; i += 3) {
    const uint8_t* at[3] = {data + starts[i], data + starts[i + 1], data + starts[i + 2]};
    const size_t size[3] = {static_cast<size_t>(sizes[i]), static_cast<size_t>(sizes[i + 1]),
                            static_cast<size_t>(sizes[i + 2])};
    uint32_t crc[3];
    crc32c_three(at, size, crc);
    for (size_t k = 0; k < 3; k++)
      if (mask(crc[k]) != load<uint32_t>(at[k] + size[k])) return i + k;
  }
  for (; i < count; i++) {
    const uint8_t* at = data + starts[i];
    const size_t size = static_cast<size_t>(sizes[i]);
    if (masked(at, size) != load<uint32_t>(at + size)) return i;
  }
  return count;
}

FrameScan scan_frames(const uint8_t* data, size_t size, size_t start, bool check, uint64_t longest,
                      size_t most, std::vector<int64_t>& starts, std::vector<int64_t>& sizes) {
  FrameScan result{kOk, start};
  size_t& at = result.offset;
  while (at < size && starts.size() < most) {
    const uint8_t* head = data + at;
    const size_t left = size - at;
    result.status = left < kFrameHeader ? kTruncated : is_header(head) ? kOk : kBadLengthCrc;
    if (result.status != kOk) break;
    const uint64_t length = load<uint64_t>(head);
    result.status =
        length > longest ? kTooLong
        : left - kFrameHeader < kFrameFooter || length > left - kFrameHeader - kFrameFooter
            ? kTruncated
            : kOk;
    if (result.status != kOk) break;
    starts.push_back(static_cast<int64_t>(at + kFrameHeader));
    sizes.push_back(static_cast<int64_t>(length));
    at += kFrameHeader + length + kFrameFooter;
  }
  const size_t bad =
      check ? first_bad_data(data, starts.data(), sizes.data(), starts.size()) : starts.size();
  if (bad < starts.size()) {
    result = {kBadDataCrc, static_cast<size_t>(starts[bad]) - kFrameHeader};
    starts.resize(bad);
    sizes.resize(bad);
  }
  return result;
}

size_t find_frame(const uint8_t* data, size_t size, size_t start, uint64_t longest) {
  // The length is looked at first: of arbitrary bytes few are that small, and the checksum costs
  // more.
  for (size_t at = start; at < size && size - at >= kFrameHeader; at++)
    if (load<uint64_t>(data + at) <= longest && is_header(data + at)) return at;
  return size;
}

size_t find_chain(const uint8_t* data, size_t size, size_t start, ChainSearch& search) {
  const auto header = [&](size_t at) {
    return at <= size && size - at >= kFrameHeader && is_header(data + at);
  };
  const size_t headers = search.stop < size ? std::min(size, search.stop + kFrameHeader - 1) : size;
  for (size_t at = start; (at = find_frame(data, headers, at, search.longest)) < headers; at++) {
    const uint64_t length = load<uint64_t>(data + at), left = search.total - at;
    if (left < kFrameHeader + kFrameFooter || length > left - kFrameHeader - kFrameFooter)
      continue;  // past the end of the file
    const size_t end = at + kFrameHeader + length + kFrameFooter;
    if (end > size || (size < search.total && size - end < kFrameHeader)) {
      if (at < search.near) continue;
      return at;
    }
    if (!header(at + kFrameHeader) && (end == search.total || header(end))) return at;
    const uint64_t cost = std::max(length, search.guess);
    if (cost > search.checks) continue;
    if (masked(data + at + kFrameHeader, length) == load<uint32_t>(data + end - kFrameFooter))
      return at;
    search.checks -= cost;
  }
  return size;
}

uint8_t* seal_frame(uint8_t* out, size_t size) {
  const uint64_t length = size;
  std::memcpy(out, &length, 8);
  const uint32_t head = mask(crc32c_eight(out)), foot = masked(out + kFrameHeader, size);
  std::memcpy(out + 8, &head, 4);
  std::memcpy(out + kFrameHeader + size, &foot, 4);
  return out + kFrameHeader + size + kFrameFooter;
}

uint8_t* write_frame(uint8_t* out, const uint8_t* data, size_t size) {
  if (size) std::memcpy(out + kFrameHeader, data, size);
  return seal_frame(out, size);
}

}  // namespace tensorwire
