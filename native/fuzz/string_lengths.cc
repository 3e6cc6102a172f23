// read_string_lengths on `one byte: how many strings | content`, and back.
#include "fuzz.h"
#include "protobuf.h"
#include "string_vals.h"

using namespace tensorwire;

namespace {

void check(const uint8_t* data, size_t size, size_t n) {
  fuzz::Exact<int64_t> offsets(n + 1);
  const Outcome o = read_string_lengths(data, size, n, offsets.data());
  CHECK(o.offset <= size && o.count <= n && offsets[0] == 0);
  for (size_t i = 0; i < o.count; i++)
    CHECK(offsets[i] <= offsets[i + 1] && offsets[i + 1] <= static_cast<int64_t>(size));
  CHECK(o.status == kOk || o.status == kTruncated || o.status == kBadVarint ||
        o.status == kTooMany);
  if (o.status != kOk) return;
  CHECK(o.count == n && static_cast<size_t>(offsets[n]) == size - o.offset &&
        o.used == size - o.offset);

  fuzz::Exact<uint8_t> lengths(string_lengths_size(offsets.data(), n));
  CHECK(lengths.size() <= o.offset);  // ours are as short as can be
  const Outcome written =
      write_string_lengths(lengths.data(), lengths.size(), o.used, offsets.data(), n);
  CHECK(written.status == kOk && written.used == lengths.size());
  CHECK(lengths.size() != o.offset || o.offset == 0 ||
        std::memcmp(lengths.data(), data, o.offset) == 0);
  if (n) {
    fuzz::Exact<uint8_t> tight(lengths.size() - 1);
    CHECK(write_string_lengths(tight.data(), tight.size(), o.used, offsets.data(), n).status ==
          kNoSpace);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const size_t n = source.take<uint8_t>();
  const fuzz::Exact<uint8_t> content(source.at, source.left);
  check(content.data(), content.size(), n);
  check(content.data(), content.size(), 1);
  return 0;
}
