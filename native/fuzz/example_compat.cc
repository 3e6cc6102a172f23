// The decoder with TensorFlow's rules: with ample room, and with almost none that grows when it is
// asked for, it comes to the same columns; those are sound, and encoded again both rules read them
// alike. With hostile outputs nothing but a crash would be wrong.
#include "example_columns.h"

using namespace tensorwire;
using fuzz::Columns;

namespace {

void check(const fuzz::Examples& in, const fuzz::Exact<uint8_t>& data, Compat compat) {
  const bool sequence = in.is(fuzz::Examples::kSequence);
  const ExampleDecoder decoder(in.columns, sequence, compat);
  if (in.is(fuzz::Examples::kHostile)) {
    fuzz::hostile(in, decoder, data);
    return;
  }
  Columns ample(in, decoder, data, data.size() + 16, 0xa5);
  CHECK(!ample.strange);
  for (const auto& [spare, fill] : {std::pair<size_t, uint8_t>{0, 0x5a}, {data.size() % 32, 0}})
    CHECK(ample.same(Columns(in, decoder, data, spare, fill)));

  // Of a SequenceExample the last value of a name counts, set or not.
  if (sequence) {
    const ExampleDecoder other(in.columns, sequence,
                               compat == kUnsetCounts ? kUnsetIgnored : kUnsetCounts);
    CHECK(ample.same(Columns(in, other, data, 7, 0x33)));
  }

  // What a writer writes means the same by both rules.
  if (ample.result.status != kOk) return;
  const fuzz::Examples again = ample.encoded(in);
  const fuzz::Exact<uint8_t> bytes(again.bytes.data(), again.bytes.size());
  for (const Compat rules : {kProtobuf, compat}) {
    const ExampleDecoder other(in.columns, sequence, rules);
    CHECK(ample.same(Columns(again, other, bytes, 3, 0x77)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* raw, size_t raw_size) {
  fuzz::Examples in(raw, raw_size);
  for (Column& column : in.columns) column.places = false;
  // Exact: what is read ahead stays inside.
  const fuzz::Exact<uint8_t> data(in.bytes.data(), in.bytes.size());
  check(in, data, kUnsetIgnored);
  check(in, data, kUnsetCounts);
  return 0;
}
