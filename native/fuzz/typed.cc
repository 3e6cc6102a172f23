// read_typed for every field and width that dtypes.py uses, strict and lenient, with more room,
// enough, and too little.
#include "typed.h"

#include <algorithm>

#include "fuzz.h"
#include "protobuf.h"
#include "tensorproto.h"

using namespace tensorwire;

namespace {

struct Kind {
  unsigned field;
  size_t width;
  int64_t lowest;
  uint64_t highest;
};

constexpr Kind kKinds[] = {
    {5, 4, 0, 0},
    {6, 8, 0, 0},
    {9, 4, 0, 0},
    {12, 8, 0, 0},
    {18, 1, 0, 0},  // floats, and bytes
    {7, 4, INT32_MIN, INT32_MAX},
    {7, 2, INT16_MIN, INT16_MAX},
    {7, 1, INT8_MIN, INT8_MAX},
    {7, 1, -8, 7},
    {7, 1, -2, 1},
    {7, 2, 0, UINT16_MAX},
    {7, 1, 0, UINT8_MAX},
    {7, 1, 0, 15},
    {7, 1, 0, 3},
    {10, 8, INT64_MIN, INT64_MAX},
    {11, 1, 0, 1},
    {13, 2, 0, UINT16_MAX},
    {16, 4, 0, UINT32_MAX},
    {17, 8, 0, UINT64_MAX},
};

struct Values {
  TypedOutcome outcome;
  fuzz::Exact<uint8_t> bytes;
};

Values read(const uint8_t* data, size_t size, const Kind& kind, bool strict, size_t room,
            uint8_t fill = 0) {
  fuzz::Exact<uint8_t> out(kind.width * room, fill);
  const TypedOutcome o = read_typed(data, size, kind.field, strict, kind.width, kind.lowest,
                                    kind.highest, out.data(), room);
  CHECK(o.count <= room && o.offset <= size);
  return {o, std::move(out)};
}

bool begins(const Values& longer, const Values& shorter, size_t bytes) {
  return bytes == 0 || std::memcmp(longer.bytes.data(), shorter.bytes.data(), bytes) == 0;
}

void check_range(const Values& values, const Kind& kind) {
  for (size_t i = 0; i < values.outcome.count; i++) {
    uint64_t value = 0;
    std::memcpy(&value, values.bytes.data() + i * kind.width, kind.width);
    if (kind.lowest < 0) {
      const unsigned unused = 64 - 8 * static_cast<unsigned>(kind.width);
      const int64_t extended = static_cast<int64_t>(value << unused) >> unused;
      CHECK(extended >= kind.lowest && extended <= static_cast<int64_t>(kind.highest));
    } else {
      CHECK(value <= kind.highest);
    }
  }
}

void check(const uint8_t* data, size_t size, const Kind& kind, bool strict,
           const TensorScan& scan) {
  if (scan.status !=
      kOk) {  // a caller's buffer may change after its scan: nothing is promised but to stay inside
    read(data, size, kind, strict, 3);
    return;
  }
  const size_t count = scan.counts[kind.field];
  const Values all = read(data, size, kind, strict, count, 0x00);
  const int status = all.outcome.status;
  // A scan counts packed varints without judging each, so these are all that may be left to find.
  CHECK(status == kOk || status == kBadVarint ||
        (strict && (status == kOutOfRange || status == kBadBool)));
  if (status == kOk)
    CHECK(all.outcome.count == count);  // else a caller would show memory that nobody wrote
  if (!count) return;
  const Values more = read(data, size, kind, strict, count + 3, 0xff),
               fewer = read(data, size, kind, strict, count / 2);
  CHECK(more.outcome.status == status && fewer.outcome.status == status);
  if (status != kOk) return;
  CHECK(more.outcome.count == count && fewer.outcome.count == count / 2);
  CHECK(begins(more, all, count * kind.width) && begins(all, fewer, count / 2 * kind.width));
  const bool is_integer = kind.highest != 0;
  if (is_integer && (strict || kind.field == 11)) check_range(all, kind);
  if (!strict) return;
  const Values lenient = read(data, size, kind, false, count);
  CHECK(lenient.outcome.status == kOk && begins(lenient, all, count * kind.width));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const bool strict : {true, false}) {
    TensorScan scan;
    scan_tensor(data, size, strict, false, scan);
    for (const Kind& kind : kKinds) check(data, size, kind, strict, scan);
  }
  return 0;
}
