// scan_tensor in its four modes: what it reports lies inside the message, and the modes agree where
// they must.
#include "tensorproto.h"

#include "fuzz.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

TensorScan scan(const uint8_t* data, size_t size, bool strict, bool stop_at_strings) {
  TensorScan s;
  scan_tensor(data, size, strict, stop_at_strings, s);
  CHECK(s.status >= kOk && s.status <= kNoSpace);
  CHECK(s.offset <= size);
  CHECK(s.rank >= 0 && s.rank <= kMaxRank);
  for (int i = 0; i < s.rank; i++) CHECK(s.dims[i] >= 0);
  CHECK(s.content_offset <= size && s.content_size <= size - s.content_offset);
  CHECK(s.has_content || s.content_size == 0);
  CHECK(s.name_offset <= size && s.name_size <= size - s.name_offset);
  size_t values = 0;
  for (int i = 0; i < kFields; i++) values += s.counts[i];
  for (int i = 0; i < 5; i++) CHECK(s.counts[i] == 0);  // dtype to content hold no values
  CHECK(values <=
        size);  // every value takes a byte or more: what callers allocate is bounded by the input
  CHECK(s.status != kOk || s.rank == 0 || s.has_shape);
  CHECK(strict || s.dtype == static_cast<int32_t>(s.dtype));  // an enum is an int32
  return s;
}

bool same(const TensorScan& a, const TensorScan& b, bool strings = true) {
  bool counts = true;
  for (int i = 0; i < kFields; i++)
    counts = counts && (a.counts[i] == b.counts[i] || (i == 8 && !strings));
  // Only the dtype may differ by mode: strict keeps a number past 32 bits, for its caller to
  // refuse.
  return counts && static_cast<int32_t>(a.dtype) == static_cast<int32_t>(b.dtype) &&
         a.rank == b.rank &&
         std::memcmp(a.dims, b.dims, static_cast<size_t>(a.rank) * sizeof *a.dims) == 0 &&
         a.has_shape == b.has_shape && a.unknown_rank == b.unknown_rank &&
         a.name_offset == b.name_offset && a.name_size == b.name_size &&
         a.has_content == b.has_content && a.content_offset == b.content_offset &&
         a.content_size == b.content_size;
}

// Two messages joined are one merged message to protobuf; strict refuses them, unless nothing in
// them is singular.
void check_joined(const uint8_t* data, size_t size, const TensorScan& once) {
  fuzz::Exact<uint8_t> both(2 * size);
  if (size) std::memcpy(both.data(), data, size);
  if (size) std::memcpy(both.data() + size, data, size);
  const TensorScan strict = scan(both.data(), both.size(), true, false),
                   merged = scan(both.data(), both.size(), false, false);
  if (once.has_shape || once.has_content || once.dtype)
    CHECK(strict.status == kRepeated && strict.offset >= size);
  if (once.rank > kMaxRank / 2) {
    CHECK(merged.status == kTooManyDims);
    return;
  }
  CHECK(merged.status == kOk && merged.rank == 2 * once.rank &&
        static_cast<int32_t>(once.dtype) == merged.dtype);
  for (int i = 0; i < merged.rank; i++) CHECK(merged.dims[i] == once.dims[i % once.rank]);
  for (int i = 0; i < kFields; i++) CHECK(merged.counts[i] == (i == 18 ? 1 : 2) * once.counts[i]);
  if (once.rank)
    CHECK(merged.name_offset == once.name_offset &&
          merged.name_size == once.name_size);  // the first dim's
  if (once.has_content)
    CHECK(merged.content_offset == once.content_offset + size &&
          merged.content_size == once.content_size);
}

// Inside an unknown group nothing of a sound message counts; the group must end with its own
// number.
void check_group(const uint8_t* data, size_t size) {
  fuzz::Exact<uint8_t> group(size + 4);
  if (size) std::memcpy(group.data() + 2, data, size);
  std::memcpy(group.data(), "\xa3\1", 2);
  std::memcpy(group.data() + size + 2, "\xa4\1", 2);
  const TensorScan inside = scan(group.data(), group.size(), false, true);
  CHECK(inside.status == kBadGroup ||
        (inside.status == kOk && same(inside, TensorScan{})));  // bad: one level too deep
  CHECK(scan(group.data(), group.size(), true, false).status == kUnknownField);
  group[size + 2] = 0xac;
  CHECK(scan(group.data(), group.size(), false, false).status == kBadGroup);
}

// Groups call themselves: past 100 levels the scan must give up, or a long enough message would use
// up the stack.
bool check_depth() {
  for (const size_t depth : {100, 101}) {
    fuzz::Exact<uint8_t> groups(4 * depth, 0x01);
    for (size_t i = 0; i < 2 * depth; i++) groups[2 * i] = i < depth ? 0xa3 : 0xa4;
    CHECK(scan(groups.data(), groups.size(), false, false).status ==
          (depth == 100 ? kOk : kBadGroup));
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool once = check_depth();
  for (const bool strict : {true, false}) {
    const TensorScan full = scan(data, size, strict, false), stop = scan(data, size, strict, true);
    CHECK(full.status != kOk || full.offset == size);
    if (stop.status != kOk) {
      CHECK(full.status == stop.status && full.offset == stop.offset);
    } else if (!stop.counts[8]) {
      CHECK(full.status == kOk && same(full, stop) && stop.offset == size);
    } else {
      CHECK(full.status != kOk || full.counts[8] > 0);
      Reader r(data, size, stop.offset);
      unsigned field, wire;
      CHECK(r.tag(field, wire) && field == 8 && wire == kLen);
      const TensorScan before = scan(data, stop.offset, strict, false);
      CHECK(before.status == kOk && same(before, stop, false));
    }
    if (!strict) {
      if (full.status == kOk) check_group(data, size);
      continue;
    }
    const TensorScan lenient = scan(data, size, false, false);
    if (full.status != kOk) continue;
    CHECK(lenient.status == kOk && same(full, lenient));
    check_joined(data, size, full);
  }
  return 0;
}
