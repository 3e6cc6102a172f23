// The survey: message by message it counts the same as all at once, a message at fault counts
// nothing, and the numbers hold together.
#include "example_survey.h"

#include "example_input.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

bool same(const ExampleSurvey::Result& a, const ExampleSurvey::Result& b) {
  if (a.records != b.records || a.with_lists != b.with_lists ||
      a.features.size() != b.features.size())
    return false;
  for (auto x = a.features.begin(), y = b.features.begin(); x != a.features.end(); x++, y++) {
    const FeatureStats &s = x->second.all, &t = y->second.all;
    if (x->first != y->first || !std::equal(s.kinds, s.kinds + 4, t.kinds) ||
        s.records != t.records || s.shortest != t.shortest || s.longest != t.longest ||
        s.values != t.values || s.least != t.least || s.most != t.most || s.low != t.low ||
        s.high != t.high || s.nans != t.nans || s.small != t.small || s.large != t.large ||
        s.fewest != t.fewest || s.most_steps != t.most_steps)
      return false;
  }
  return true;
}

void check(const ExampleSurvey::Result& r, size_t messages, size_t bytes) {
  CHECK(r.records == messages && r.with_lists <= messages);
  uint64_t values = 0;
  for (const auto& [key, feature] : r.features) {
    const FeatureStats& s = feature.all;
    const uint64_t with_values = s.kinds[1] + s.kinds[2] + s.kinds[3];
    CHECK(s.records <= messages && (s.records || s.kinds[0]));
    CHECK(key.first || (s.records == with_values && s.records + s.kinds[0] <= messages));
    CHECK(!with_values || (s.shortest <= s.longest && s.longest <= s.values));
    CHECK(!key.first || (s.fewest <= s.most_steps && s.most_steps <= with_values + s.kinds[0]));
    CHECK(s.small == UINT64_MAX || (s.small <= s.large && s.kinds[1]));
    CHECK(s.least == INT64_MAX || s.kinds[3]);
    CHECK(s.nans <= s.values && !(s.low != s.low) && !(s.high != s.high));
    values += s.values;
  }
  CHECK(values <= bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* raw, size_t raw_size) {
  const fuzz::Examples in(raw, raw_size);
  const bool checked = !in.is(fuzz::Examples::kFooters);
  const fuzz::Exact<uint8_t> data(in.bytes.data(), in.bytes.size());
  const size_t count = in.starts.size();
  for (const size_t most : {size_t{1} << 20, in.columns.size()}) {
    ExampleSurvey whole(most), single(most);
    const Surveyed s =
        whole.add(data.data(), data.size(), in.starts.data(), in.sizes.data(), count, checked);
    CHECK(s.done <= count && s.offset <= data.size() && (s.status == kOk) == (s.done == count));
    check(whole.result(), s.done, data.size());
    CHECK(whole.result().features.size() <= most);
    for (size_t i = 0; i < s.done; i++)
      CHECK(single.add(data.data(), data.size(), &in.starts[i], &in.sizes[i], 1, checked).status ==
            kOk);
    CHECK(same(whole.result(), single.result()));
    CHECK(whole.others() == single.others() && whole.others() <= s.done);
    if (s.status == kOk) continue;
    const Surveyed again =
        single.add(data.data(), data.size(), &in.starts[s.done], &in.sizes[s.done], 1, checked);
    CHECK(again.status == s.status && again.offset == s.offset && again.done == 0);
    CHECK(same(whole.result(), single.result()));
  }
  return 0;
}
