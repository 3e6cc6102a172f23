// The decoder: with ample room, and with almost none that grows when it is asked for, it comes to
// the same columns; those are sound, lie inside exactly the room given, and encoded and decoded
// again they are the same. With hostile outputs nothing but a crash would be wrong.
#include <algorithm>

#include "example_columns.h"
#include "example_survey.h"

using namespace tensorwire;
using fuzz::Columns;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* raw, size_t raw_size) {
  const fuzz::Examples in(raw, raw_size);
  const ExampleDecoder decoder(in.columns, in.is(fuzz::Examples::kSequence));
  const fuzz::Exact<uint8_t> data(in.bytes.data(),
                                  in.bytes.size());  // exact: what is read ahead stays inside
  if (in.is(fuzz::Examples::kHostile)) {
    fuzz::hostile(in, decoder, data);
    return 0;
  }
  Columns ample(in, decoder, data, data.size() + 16, 0xa5);
  for (const auto& [spare, fill] : {std::pair<size_t, uint8_t>{0, 0x5a}, {data.size() % 32, 0}}) {
    const Columns other(in, decoder, data, spare, fill);
    CHECK(ample.same(other) && ample.strange == other.strange);
  }

  // The survey looks at everything: what it lets pass, the decoder can only refuse for its columns.
  ExampleSurvey survey(1 << 20);
  const Surveyed s = survey.add(data.data(), data.size(), in.starts.data(), in.sizes.data(),
                                in.starts.size(), !in.is(fuzz::Examples::kFooters));
  CHECK(s.status != kOk || ample.result.status == kOk || ample.result.status == kWrongKind ||
        ample.result.status == kWrongLength);
  CHECK(s.done <= ample.result.done || ample.result.status == kWrongKind ||
        ample.result.status == kWrongLength);

  if (s.status == kOk && ample.result.status == kOk)
    for (const auto& [key, feature] : survey.result().features)
      CHECK(ample.strange || decoder.find(key.second, key.first) >= 0);

  // Places are those of this buffer, and no column to encode.
  const bool all = std::none_of(in.columns.begin(), in.columns.end(),
                                [](const Column& column) { return column.places; });
  if (ample.result.status == kOk && all) {
    const fuzz::Examples again = ample.encoded(in);
    const fuzz::Exact<uint8_t> bytes(again.bytes.data(), again.bytes.size());
    const Columns other(again, decoder, bytes, 3, 0x77);
    CHECK(ample.same(other) && !other.strange);
  }
  return 0;
}
