// Encoding columns that may say anything: nothing outside the arrays is read, nothing outside the
// room is written, and whatever is written is sound. Input: `flags | columns | rows | room (two
// bytes) | first | step`, then for each column what it is and its arrays.
#include "example_encode.h"

#include <deque>

#include "example_survey.h"
#include "fuzz.h"
#include "protobuf.h"
#include "tfrecord.h"

using namespace tensorwire;

namespace {

// A count of numbers, each a byte, or 0xff and eight.
fuzz::Exact<int64_t> numbers(fuzz::Source& source, size_t least) {
  fuzz::Exact<int64_t> out(least + source.take<uint8_t>() % 16);
  for (size_t i = 0; i < out.size(); i++) {
    out[i] = source.take<uint8_t>();
    if (out[i] == 0xff) out[i] = source.take<int64_t>();
  }
  return out;
}

size_t index(fuzz::Source& source) {
  const uint8_t byte = source.take<uint8_t>();
  return byte < 0xf0 ? byte % 8 : source.take<uint64_t>();
}

struct Given {
  fuzz::Exact<uint8_t> values, present;
  fuzz::Exact<int64_t> offsets, splits, steps;
};

Given given(fuzz::Source& source, Input& in) {
  const unsigned what = source.take<uint8_t>();
  in.kind = 1 + static_cast<int>(what % 4 % 3);
  in.list = what & 4;
  in.length = what & 8 ? -1 : static_cast<int64_t>(what >> 4 & 3);
  if (what & 8 && what & 16)
    in.length = source.take<int64_t>() & INT64_MAX;  // fixed, of any length
  in.name = std::string(what & 64 ? 200 : what & 128 ? 1 : 0, 'n');
  const size_t item = in.kind == 1 ? 1 : in.kind == 2 ? 4 : 8, size = source.take<uint8_t>() % 64;
  Given g{fuzz::Exact<uint8_t>(item * size), fuzz::Exact<uint8_t>(source.take<uint8_t>() % 8),
          fuzz::Exact<int64_t>(size_t{0}), fuzz::Exact<int64_t>(size_t{0}),
          fuzz::Exact<int64_t>(size_t{0})};
  for (size_t i = 0; i < g.values.size(); i++) g.values[i] = source.take<uint8_t>();
  for (size_t i = 0; i < g.present.size(); i++) g.present[i] = source.take<uint8_t>() & 1;
  if (in.kind == 1) g.offsets = numbers(source, 1);
  if (in.length < 0) g.splits = numbers(source, 0);
  if (in.list) g.steps = numbers(source, 0);
  in.values = g.values.data(), in.values_size = size;
  in.offsets = in.kind == 1 ? g.offsets.data() : nullptr, in.offsets_size = g.offsets.size();
  in.splits = in.length < 0 ? g.splits.data() : nullptr, in.splits_size = g.splits.size();
  in.steps = in.list ? g.steps.data() : nullptr, in.steps_size = g.steps.size();
  in.present = g.present.size() ? g.present.data() : nullptr, in.present_size = g.present.size();
  return g;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const unsigned flags = source.take<uint8_t>();
  const bool sequence = flags & 1, framed = flags & 2;
  const size_t n = source.take<uint8_t>() % 5, count = source.take<uint8_t>() % 8;
  const size_t small = source.take<uint16_t>() % 2048, first = index(source), step = index(source);
  std::vector<Input> columns(n);
  std::deque<Given> arrays;
  for (Input& in : columns) {
    arrays.push_back(given(source, in));
    // What the bindings refuse: a feature list outside a SequenceExample.
    in.list = in.list && sequence;
    if (!in.list) in.steps = nullptr;
  }
  fuzz::Exact<uint8_t> before(0);
  Encoded last;
  for (const size_t room : {size_t{0}, small, size_t{1} << 14}) {
    fuzz::Exact<uint8_t> out(room);
    fuzz::Exact<int64_t> ends(count);
    const Encoded e = encode_examples(columns, sequence, first, step, count, framed, out.data(),
                                      room, flags & 4 ? nullptr : ends.data());
    CHECK(e.done <= count && e.used <= room &&
          (e.status == kOk || e.status == kNoSpace || e.status == kOutOfRange));
    CHECK((e.status == kOk) == (e.done == count));
    CHECK(e.status == kNoSpace ? e.wanted > room - e.used : e.wanted == 0);
    for (size_t i = 0; i < e.done && !(flags & 4); i++)
      CHECK(ends[i] > (i ? ends[i - 1] : 0) && ends[i] <= static_cast<int64_t>(e.used));

    // More room changes nothing about what came first, and whoever gets what he wanted gets
    // further.
    CHECK(last.done <= e.done && last.used <= e.used &&
          std::memcmp(before.data(), out.data(), last.used) == 0);
    if (last.status == kNoSpace && room - last.used >= last.wanted) CHECK(e.done > last.done);
    last = e;

    std::vector<int64_t> starts, sizes;
    if (framed) {
      const FrameScan scan =
          scan_frames(out.data(), e.used, 0, true, UINT64_MAX, SIZE_MAX, starts, sizes);
      CHECK(scan.status == kOk && scan.offset == e.used && starts.size() == e.done);
    } else if (!(flags & 4)) {
      for (size_t i = 0; i < e.done; i++) {
        starts.push_back(i ? ends[i - 1] : 0);
        sizes.push_back(ends[i] - starts.back());
      }
    }
    ExampleSurvey survey(100);
    CHECK(survey.add(out.data(), e.used, starts.data(), sizes.data(), starts.size(), true).status ==
          kOk);
    CHECK(survey.result().with_lists == (sequence ? starts.size() : 0));
    before = std::move(out);
  }
  return 0;
}
