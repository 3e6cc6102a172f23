// What features a file of Examples has: their kinds, how often they are there, how many values they
// hold, and in which range.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tensorwire {

struct FeatureStats {
  uint64_t kinds[4] = {0, 0, 0, 0};  // instances by FeatureKind; 0 is a Feature without a list
  uint64_t records = 0;              // that have it
  uint64_t shortest = UINT64_MAX, longest = 0;  // values of an instance
  uint64_t values = 0;
  int64_t least = INT64_MAX, most = INT64_MIN;            // of int64 values
  double low = __builtin_inf(), high = -__builtin_inf();  // of float values; NaN does not count
  uint64_t nans = 0;
  uint64_t small = UINT64_MAX, large = 0;        // bytes of a string
  uint64_t fewest = UINT64_MAX, most_steps = 0;  // steps of a feature list
};

struct SurveyedFeature {
  FeatureStats all, now;  // of all messages, and of the one that is being read
  uint64_t stamp = 0;     // the number of the message that `now` is of
};

struct Surveyed {
  int status = 0;
  size_t offset = 0;
  size_t done = 0;
};

class ExampleSurvey {
 public:
  using Features = std::map<std::pair<bool, std::string>, SurveyedFeature, std::less<>>;

  explicit ExampleSurvey(size_t most_names) : most_names_(most_names) {}

  Surveyed add(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* sizes,
               size_t count, bool checked);

  struct Result {
    uint64_t records,
        with_lists;     // messages, and those with a `feature_lists` field: SequenceExamples
    Features features;  // (is a feature list, name) -> what was seen of it, in the order of names
  };
  Result result() const;

  // Messages of another type: they have fields, but none that an Example or SequenceExample has.
  uint64_t others() const;

 private:
  friend class Surveying;
  Features features_;
  uint64_t records_ = 0, with_lists_ = 0, others_ = 0, stamp_ = 0;
  size_t most_names_;
  mutable std::mutex mutex_;  // one message at a time, whoever calls
};

}  // namespace tensorwire
