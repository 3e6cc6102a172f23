// read_json_any, read_json_shape and skip_json on any text: never a byte outside of it; what is
// read with a shape is what is read without one; numbers are those of the standard library; what
// was read is written and read again to the same bits.
#include <bit>
#include <charconv>
#include <cmath>

#include "fuzz.h"
#include "json_floats.h"
#include "json_numbers.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

struct Value {
  JsonOutcome outcome;
  JsonArray array;
  ~Value() { std::free(array.values); }
};

bool is_fault(int status) {
  return status == kTruncated || status == kOutOfRange ||
         (status >= kBadJson && status <= kTooDeep);
}

template <class T>
void check_number(const uint8_t* text, const Value& value) {
  const char *first = reinterpret_cast<const char*>(text), *last = first + value.outcome.end;
  while (*first == ' ' || *first == '\n' || *first == '\r' || *first == '\t') first++;
  if (last[-1] == '"' || last[-1] == 'N' || last[-1] == 'y') return;
  T expected, found;
  const auto [end, error] = std::from_chars(first, last, expected);
  std::memcpy(&found, value.array.values, sizeof found);
  if (error == std::errc::result_out_of_range) {
    CHECK(std::fabs(found) <
          std::numeric_limits<T>::min());  // rounded to nothing: past the largest is refused
  } else {
    CHECK(error == std::errc() && end == last && std::memcmp(&expected, &found, sizeof found) == 0);
  }
}

void check_again(JsonKind kind, const Value& value) {
  const size_t width = json_width(kind), size = value.array.count * width;
  JsonLayout layout;
  for (int i = 0; i < value.array.rank; i++)
    layout.levels.push_back({nullptr, 0, value.array.dims[i]});
  const size_t room = json_room(kind, value.array.count, layout);
  fuzz::Exact<uint8_t> text(room);
  const JsonWritten written =
      write_json(kind, value.array.values, value.array.count, layout, text.data(), room);
  CHECK(written.status == kOk && written.size <= room);
  Value again;
  again.outcome = read_json_any(text.data(), written.size, 0, kind, false, SIZE_MAX, again.array);
  CHECK(again.outcome.status == kOk && again.outcome.end == written.size &&
        again.array.count == value.array.count);
  CHECK(size == 0 || std::memcmp(again.array.values, value.array.values, size) == 0);
}

void check_shape(const uint8_t* text, size_t size, JsonKind kind, const Value& value) {
  const size_t bytes = value.array.count * json_width(kind);
  fuzz::Exact<uint8_t> a(bytes), b(bytes, 0x5a);
  const JsonOutcome o =
      read_json_shape(text, size, 0, kind, value.array.dims, value.array.rank, a.data());
  CHECK(o.status == kOk && o.end == value.outcome.end &&
        std::memcmp(a.data(), value.array.values, bytes) == 0);
  size_t dims[kMaxJsonRank];
  std::memcpy(dims, value.array.dims, sizeof dims);
  if (value.array.rank && dims[value.array.rank - 1] > 1) {
    dims[value.array.rank - 1]--;
    CHECK(read_json_shape(text, size, 0, kind, dims, value.array.rank, b.data()).status ==
          kWrongShape);
  }
}

void check(const uint8_t* text, size_t size, JsonKind kind) {
  Value plain, ragged, few;
  plain.outcome = read_json_any(text, size, 0, kind, false, SIZE_MAX, plain.array);
  ragged.outcome = read_json_any(text, size, 0, kind, true, SIZE_MAX, ragged.array);
  CHECK(plain.array.count <= size / 2 + 1 && plain.outcome.offset <= size &&
        plain.outcome.end <= size);
  if (ragged.outcome.status != kOk)
    CHECK(is_fault(ragged.outcome.status) && plain.outcome.status != kOk);
  if (plain.outcome.status != kOk) {
    CHECK(is_fault(plain.outcome.status));
    return;
  }
  CHECK(ragged.outcome.status == kOk && ragged.array.count == plain.array.count &&
        ragged.outcome.end == plain.outcome.end);
  if (plain.array.count) {
    few.outcome = read_json_any(text, size, 0, kind, false, plain.array.count - 1, few.array);
    CHECK(few.outcome.status == kOverLimit);
    check_shape(text, size, kind, plain);
  }
  if (plain.array.rank == 0 && kind == kFloat64) check_number<double>(text, plain);
  if (plain.array.rank == 0 && kind == kFloat32) check_number<float>(text, plain);
  check_again(kind, plain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  const auto kind = static_cast<JsonKind>(*data++ % kJsonKinds);
  check(data, --size, kind);
  for (const bool past : {false, true}) {
    const JsonSkipped s = skip_json(data, size, 0, 64, past);
    CHECK(s.offset <= size && s.depth >= 0 && s.depth <= 64 && !(past && s.dollar));
    CHECK(s.status == kOk || s.status == kTruncated || s.status == kBadJson ||
          s.status == kTooDeep);
    CHECK(s.status != kOk || s.dollar || s.offset >= 2);
  }
  return 0;
}
