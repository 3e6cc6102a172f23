#include "table.h"

#include <algorithm>
#include <cstring>

#include "protobuf.h"

namespace tensorwire {
namespace {

constexpr uint64_t kInt64Max = (uint64_t{1} << 63) - 1;

uint32_t read_u32(const uint8_t* p) {
  return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

struct BlockEntry {
  uint64_t shared, added, value;  // bytes of the key before, of this one, of the value
};

// The three lengths of an entry; what they speak of lies before `end`.
bool entry_head(Reader& r, BlockEntry& e) {
  const uint8_t* start = r.at;
  if (!r.varint(e.shared) || !r.varint(e.added) || !r.varint(e.value)) return false;
  const uint64_t left = static_cast<uint64_t>(r.end - r.at);
  if (e.added > left || e.value > left - e.added) return r.fail(kTruncated, start);
  return true;
}

}  // namespace

BlockSize measure_block(const uint8_t* in, size_t size, size_t room) {
  if (size < 4) return {kTruncated, size, 0, 0, 0};
  const uint64_t restarts = read_u32(in + size - 4);
  if (restarts == 0 || restarts > (size - 4) / 4) return {kBadRestarts, size - 4, 0, 0, 0};
  const size_t end = size - 4 - 4 * static_cast<size_t>(restarts);
  Reader r(in, end);
  uint64_t next = 0, length = 0;
  size_t entries = 0, keys = 0;
  while (!r.done()) {
    const size_t at = static_cast<size_t>(r.at - in);
    const bool restart = next < restarts && read_u32(in + end + 4 * next) == at;
    next += restart;
    BlockEntry e;
    if (!entry_head(r, e)) return {r.status, r.offset, 0, 0, 0};
    if (e.shared > length) return {kBadPrefix, at, 0, 0, 0};
    if ((restart && e.shared) || (at == 0 && !restart)) return {kBadRestarts, at, 0, 0, 0};
    length = e.shared + e.added;
    if (length > room - keys) return {kOverLimit, at, 0, 0, 0};
    keys += length;
    entries++;
    r.at += e.added + e.value;
  }
  if (entries == 0 && restarts == 1 && read_u32(in + end) == 0)
    next = 1;  // a block of nothing has one all the same
  if (next != restarts) return {kBadRestarts, end + 4 * static_cast<size_t>(next), 0, 0, 0};
  return {kOk, end, entries, keys, end};
}

bool BlockWalk::next() {
  Reader r(in_, end_, at_);
  BlockEntry e;
  status = kNoSpace;
  offset = at_;
  if (!entry_head(r, e)) return status = r.status, offset = r.offset, false;
  if (e.shared > key.size() || e.shared + e.added > room_) return false;
  const size_t shared = static_cast<size_t>(e.shared), added = static_cast<size_t>(e.added),
               rest = key.size() - shared;
  const size_t common = std::min(rest, added);
  const int order = common ? std::memcmp(r.at, key.data() + shared, common) : 0;
  if (!first_ && (order < 0 || (order == 0 && added <= rest))) return status = kKeyOrder, false;
  first_ = false;
  key.resize(shared + added);
  if (added) std::memcpy(key.data() + shared, r.at, added);
  room_ -= shared + added;
  start = static_cast<size_t>(r.at - in_) + added;
  length = static_cast<size_t>(e.value);
  at_ = start + length;
  return status = kOk, true;
}

int BundleEntry::check(const uint8_t* itemsizes, int64_t shards) const {
  const uint8_t itemsize = dtype < 256 ? itemsizes[dtype] : 0;
  if (itemsize == 0) return kNoDtype;
  if (shard >= shards) return kNoShard;
  if (slices) return size ? kWrongSize : kOk;
  if (itemsize != 255 && (size % itemsize || size / itemsize != elements)) return kWrongSize;
  return kOk;
}

namespace {

// TensorShapeProto.Dim{1 size, 2 name}
bool read_dim(Reader& r, BundleEntry& entry) {
  const uint8_t* start = r.at;
  uint64_t size = 0;
  bool seen = false;
  while (!r.done()) {
    const uint8_t* at = r.at;
    unsigned field, wire;
    if (!r.tag(field, wire)) return false;
    if (field == 1 && wire == kVarint) {
      if (seen) return r.fail(kRepeated, at);
      seen = true;
      if (!r.varint(size)) return false;
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  if (size > kInt64Max) return r.fail(kNegativeDim, start);
  if (entry.rank == kMaxEntryRank) return r.fail(kTooManyDims, start);
  entry.dims[entry.rank++] = static_cast<int64_t>(size);
  return true;
}

// TensorShapeProto{2 dim, 3 unknown_rank}
bool read_shape(Reader& r, BundleEntry& entry) {
  const uint8_t* start = r.at;
  while (!r.done()) {
    const uint8_t* at = r.at;
    unsigned field, wire;
    uint64_t value;
    if (!r.tag(field, wire)) return false;
    if (field == 2 && wire == kLen) {
      if (!r.length(value)) return false;
      Reader dim(r.begin, static_cast<size_t>(r.at - r.begin) + static_cast<size_t>(value),
                 static_cast<size_t>(r.at - r.begin));
      if (!read_dim(dim, entry)) return r.fail(dim.status, r.begin + dim.offset);
      r.at += value;
    } else if (field == 3 && wire == kVarint) {
      if (!r.varint(value)) return false;
      if (value) return r.fail(kNegativeDim, at);  // a shape of which nothing is known has no bytes
    } else if (!r.skip(field, wire)) {
      return false;
    }
  }
  uint64_t bound = 1;
  for (size_t i = 0; i < entry.rank; i++) {
    const uint64_t dim = static_cast<uint64_t>(entry.dims[i]), step = dim ? dim : 1;
    if (step > kInt64Max / bound) return r.fail(kTooLarge, start);
    bound *= step;
    entry.elements *= dim ? 1 : 0;
  }
  if (entry.elements) entry.elements = static_cast<int64_t>(bound);
  return true;
}

bool read_fields(Reader& r, BundleEntry& entry) {
  unsigned seen = 0;
  while (!r.done()) {
    const uint8_t* at = r.at;
    unsigned field, wire;
    uint64_t value;
    if (!r.tag(field, wire)) return false;
    if (field > 7) {  // what newer versions may have added
      if (!r.skip(field, wire)) return false;
      continue;
    }
    const unsigned wanted = field == 2 || field == 7 ? kLen : field == 6 ? kFixed32 : kVarint;
    if (wire != wanted) return r.fail(kUnknownField, at);
    if (field != 7 && seen >> field & 1) return r.fail(kRepeated, at);
    seen |= 1u << field;
    if (wire == kFixed32) {
      if (!r.fixed(4)) return false;
      entry.crc = read_u32(r.at - 4);
    } else if (wire == kVarint) {
      if (!r.varint(value)) return false;
      if (value > kInt64Max) return r.fail(kOutOfRange, at);
      int64_t* places[] = {nullptr,      &entry.dtype,  nullptr,
                           &entry.shard, &entry.offset, &entry.size};
      *places[field] = static_cast<int64_t>(value);
    } else {
      if (!r.length(value)) return false;
      if (field == 2) {
        Reader shape(r.begin, static_cast<size_t>(r.at - r.begin) + static_cast<size_t>(value),
                     static_cast<size_t>(r.at - r.begin));
        if (!read_shape(shape, entry)) return r.fail(shape.status, r.begin + shape.offset);
      } else {
        entry.slices++;
      }
      r.at += value;
    }
  }
  if (static_cast<uint64_t>(entry.offset) > kInt64Max - static_cast<uint64_t>(entry.size))
    return r.fail(kOutOfRange, r.begin);
  return true;
}

}  // namespace

bool read_bundle_entry(const uint8_t* in, size_t size, BundleEntry& entry, int& status,
                       size_t& offset) {
  Reader r(in, size);
  if (read_fields(r, entry)) return true;
  status = r.status;
  offset = r.offset;
  return false;
}

}  // namespace tensorwire
