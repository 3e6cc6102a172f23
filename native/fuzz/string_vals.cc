// read_string_vals and find_string_vals: both see the same strings, all of them inside the message,
// whatever room they are given.
#include "string_vals.h"

#include "fuzz.h"
#include "protobuf.h"
#include "tensorproto.h"

using namespace tensorwire;

namespace {

// Reads with room for n strings of `room` bytes, and compares with what the walk found.
void check_read(const uint8_t* data, size_t size, size_t start, bool only, const Outcome& found,
                const int64_t* starts, const int64_t* sizes, size_t n, size_t room) {
  fuzz::Exact<uint8_t> out(room);
  fuzz::Exact<int64_t> offsets(n + 1);
  const Outcome o = read_string_vals(data, size, start, only, n, out.data(), room, offsets.data());
  CHECK(o.used <= room && o.count <= found.count);
  CHECK(offsets[0] == 0);
  size_t stored = 0, used = 0;
  while (stored < n && stored < found.count && static_cast<size_t>(sizes[stored]) <= room - used) {
    const size_t length = static_cast<size_t>(sizes[stored]);
    CHECK(offsets[stored] == static_cast<int64_t>(used) &&
          offsets[stored + 1] == static_cast<int64_t>(used + length));
    CHECK(length == 0 || std::memcmp(out.data() + used, data + starts[stored], length) == 0);
    used += length;
    stored++;
  }
  CHECK(o.used == used);
  if (stored < n && stored < found.count) {
    CHECK(o.status == kNoSpace && o.count == stored && o.offset >= start &&
          o.offset < static_cast<size_t>(starts[stored]));
  } else {
    CHECK(o.status == found.status && o.offset == found.offset && o.count == found.count);
  }
}

Outcome check(const uint8_t* data, size_t size, size_t start, bool only) {
  const Outcome found = find_string_vals(data, size, start, only, 0, nullptr, nullptr);
  CHECK(found.offset >= start && found.offset <= size && found.count <= (size - start) / 2);
  fuzz::Exact<int64_t> starts(found.count), sizes(found.count);
  const Outcome again =
      find_string_vals(data, size, start, only, found.count, starts.data(), sizes.data());
  CHECK(again.status == found.status && again.offset == found.offset && again.count == found.count);
  size_t end = start, total = 0;
  for (size_t i = 0; i < found.count; i++) {
    CHECK(starts[i] >= 0 && sizes[i] >= 0 &&
          static_cast<size_t>(starts[i]) >= end + 2);  // a tag and a length before each
    end = static_cast<size_t>(starts[i]) + static_cast<size_t>(sizes[i]);
    CHECK(end <= size);
    total += static_cast<size_t>(sizes[i]);
  }
  const size_t n = found.count;
  const auto read = [&](size_t count, size_t room) {
    check_read(data, size, start, only, found, starts.data(), sizes.data(), count, room);
  };
  read(n, total);
  read(n + 2, total + 40);  // behind the last string there is room for a copy in wide steps
  read(n / 2, total);
  read(n, total / 2);
  if (total) read(n, total - 1);
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Outcome any = check(data, size, 0, false);
  const Outcome only = check(data, size, 0, true);
  CHECK(only.status != kOk || (any.status == kOk && any.count == only.count));
  for (const bool strict : {true, false}) {
    TensorScan whole, part;
    scan_tensor(data, size, strict, false, whole);
    CHECK(whole.status != kOk || (any.status == kOk && any.count == whole.counts[8]));
    scan_tensor(data, size, strict, true, part);
    if (part.status != kOk || !part.counts[8]) continue;
    // The fast path: stop at the first string, let the copying kernel judge the rest.
    const Outcome rest = check(data, size, part.offset, true);
    CHECK(rest.status != kOk || (whole.status == kOk && whole.counts[8] == rest.count));
  }
  return 0;
}
