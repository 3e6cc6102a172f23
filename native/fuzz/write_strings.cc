// Writing strings. Input: `mode | count | ...`. Mode 0 mod 2 takes one byte a string for its
// length: what is written must read back the same. Mode 1 takes each offset raw: another thread may
// have put anything there, and nothing may be written outside.
#include <algorithm>

#include "fuzz.h"
#include "protobuf.h"
#include "string_vals.h"

using namespace tensorwire;

namespace {

// Up to 100 as it is, for every step of the copying; then in larger steps, for varints of two
// bytes.
size_t length_of(uint8_t byte) { return byte <= 100 ? byte : 100 + (byte - 100u) * 3u; }

void honest(fuzz::Source source, size_t n) {
  fuzz::Exact<int64_t> offsets(n + 1);
  offsets[0] = source.take<uint8_t>() % 8;  // a slice of a longer vector does not begin at 0
  for (size_t i = 0; i < n; i++)
    offsets[i + 1] = offsets[i] + static_cast<int64_t>(length_of(source.take<uint8_t>()));
  fuzz::Exact<uint8_t> text(static_cast<size_t>(offsets[n]));
  for (size_t i = 0; i < text.size(); i++)
    text[i] = static_cast<uint8_t>(i ^ i >> 8);  // no two places look alike

  fuzz::Exact<uint8_t> out(string_vals_size(offsets.data(), n));
  const Outcome o =
      write_string_vals(out.data(), out.size(), text.data(), text.size(), offsets.data(), n);
  CHECK(o.status == kOk && o.count == n && o.used == out.size());

  const size_t first = static_cast<size_t>(offsets[0]), total = text.size() - first;
  fuzz::Exact<uint8_t> back(total);
  fuzz::Exact<int64_t> places(n + 1);
  const Outcome r =
      read_string_vals(out.data(), out.size(), 0, true, n, back.data(), total, places.data());
  CHECK(r.status == kOk && r.count == n && r.used == total);
  CHECK(total == 0 || std::memcmp(back.data(), text.data() + first, total) == 0);
  for (size_t i = 0; i <= n; i++) CHECK(places[i] == offsets[i] - offsets[0]);

  if (n) {
    fuzz::Exact<uint8_t> tight(out.size() - 1);
    CHECK(write_string_vals(tight.data(), tight.size(), text.data(), text.size(), offsets.data(), n)
              .status == kNoSpace);
  }

  // The other form: all lengths, then all bytes.
  const size_t head = string_lengths_size(offsets.data(), n);
  fuzz::Exact<uint8_t> content(head + total);
  CHECK(write_string_lengths(content.data(), head, text.size(), offsets.data(), n).used == head);
  if (total) std::memcpy(content.data() + head, text.data() + first, total);
  const Outcome l = read_string_lengths(content.data(), content.size(), n, places.data());
  CHECK(l.status == kOk && l.offset == head && l.used == total);
  for (size_t i = 0; i <= n; i++) CHECK(places[i] == offsets[i] - offsets[0]);
}

void hostile(fuzz::Source source, size_t n) {
  const size_t room = source.take<uint8_t>() * 4u;
  fuzz::Exact<int64_t> offsets(n + 1);
  for (size_t i = 0; i <= n; i++) offsets[i] = source.take<int64_t>();
  const fuzz::Exact<uint8_t> text(source.at, source.left);

  // The size is nonsense here, and only the size of what is allocated.
  const size_t claimed = string_vals_size(offsets.data(), n);
  for (const size_t size : {room, std::min(claimed, size_t{4096})}) {
    fuzz::Exact<uint8_t> out(size);
    const Outcome o =
        write_string_vals(out.data(), size, text.data(), text.size(), offsets.data(), n);
    CHECK(o.status == kOk || o.status == kNoSpace);
    CHECK(o.used <= size && o.count <= n);
    if (o.status != kOk) continue;
    CHECK(o.used == claimed);
    for (size_t i = 0; i < n; i++)
      CHECK(offsets[i] >= 0 && offsets[i] <= offsets[i + 1] &&
            offsets[i + 1] <= static_cast<int64_t>(text.size()));
  }
  const size_t lengths = string_lengths_size(offsets.data(), n);
  CHECK(lengths <= 10 * n);
  for (const size_t size : {std::min(room, lengths), lengths}) {
    fuzz::Exact<uint8_t> out(size);
    const Outcome o = write_string_lengths(out.data(), size, text.size(), offsets.data(), n);
    CHECK(o.used <= size && o.count <= n && (o.status == kOk || o.status == kNoSpace));
    if (o.status != kOk) continue;
    for (size_t i = 0; i < n; i++)
      CHECK(offsets[i] >= 0 && offsets[i] <= offsets[i + 1] &&
            offsets[i + 1] <= static_cast<int64_t>(text.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const bool raw = source.take<uint8_t>() & 1;
  const size_t n = source.take<uint8_t>() % 64;
  raw ? hostile(source, n) : honest(source, n);
  return 0;
}
