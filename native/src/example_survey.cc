#include "example_survey.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "example_walk.h"
#include "tfrecord.h"

namespace tensorwire {

// One instance of a feature, seen whole before it is counted: of a oneof the last list counts.
struct Seen {
  int kind = kNoList;
  uint64_t count = 0, nans = 0;
  int64_t least = INT64_MAX, most = INT64_MIN;
  float low = __builtin_inff(), high = -__builtin_inff();
  uint64_t small = UINT64_MAX, large = 0;
};

class Surveying {
 public:
  Surveying(ExampleSurvey& survey, const uint8_t* data, size_t size)
      : survey_(survey), data_(data), limit_(data + size) {}

  Surveyed result;

  bool message(Span span) {
    // A name that stands twice counts once, as the last: so the record is gathered first, and
    // counted when it is whole.
    stamp_++;
    found_.clear();
    added_.clear();
    positions_[0] = positions_[1] = 0;
    bool lists = false;
    undefined_ = false;
    if (!gather(span, lists)) {
      for (const auto& at : added_)
        survey_.features_.erase(at);  // nor do the names of a message at fault count
      return false;
    }
    for (SurveyedFeature* feature : found_) count(feature->all, feature->now);
    survey_.records_++;
    survey_.with_lists_ += lists;
    survey_.others_ += undefined_ && !positions_[0] && !positions_[1];
    return true;
  }

 private:
  bool gather(Span span, bool& lists) {
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      unsigned field, wire;
      if (!r.tag(field, wire)) return malformed(r);
      if (wire != kLen || field > 2) {
        if (!r.skip(field, wire)) return malformed(r);
        undefined_ = true;
        continue;
      }
      uint64_t size;
      if (!read_length(r, size)) return malformed(r);
      const Span part{r.at, r.at + size};
      lists |= field == 2;
      if (!entries(part, field == 2)) return false;
      r.at = part.end;
    }
    return true;
  }

  bool malformed(const Reader& r) {
    result.status = r.status;
    result.offset = r.offset;
    return false;
  }

  bool entries(Span span, bool list) {
    Reader r = reader_of(data_, span);
    const bool ok = each_message(
        r, 1,
        [&](Span at) {
          if (!read_entry(r, at, entry_)) return false;
          SurveyedFeature* feature = guess(entry_.key, list, at.at);
          if (!feature) return false;
          if (feature->stamp != stamp_) found_.push_back(feature);
          feature->stamp = stamp_;
          FeatureStats& now = feature->now = {};
          const Span* values = entry_.usual ? &entry_.value : entry_.values.data();
          const size_t count = entry_.usual ? 1 : entry_.values.size();
          return list ? steps(now, values, count) : one(now, values, count);
        },
        &undefined_);
    if (!ok && result.status == kOk) return malformed(r);
    return ok;
  }

  bool one(FeatureStats& now, const Span* values, size_t count) {
    Seen seen;
    for (size_t i = 0; i < count; i++)
      if (!feature(values[i], seen)) return false;
    now.records = seen.kind != kNoList;
    if (now.records)
      count_instance(now, seen);
    else
      now.kinds[kNoList] = 1;
    return true;
  }

  bool steps(FeatureStats& now, const Span* values, size_t count) {
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++) {
      Reader r = reader_of(data_, values[i]);
      const bool ok = each_message(r, 1, [&](Span step) {
        Seen seen;
        if (!feature(step, seen)) return false;
        count_instance(now, seen);
        n++;
        return true;
      });
      if (!ok) return result.status == kOk ? malformed(r) : false;
    }
    now.records = 1;
    now.fewest = now.most_steps = n;
    return true;
  }

  // Records mostly have the same features in the same order, so the one at this place in the last
  // record is tried first.
  SurveyedFeature* guess(std::string_view name, bool list, const uint8_t* where) {
    const size_t position = positions_[list]++;
    auto& guesses = guesses_[list];
    if (position < guesses.size() && guesses[position]->first.second == name)
      return &guesses[position]->second;
    SurveyedFeature* feature = find(name, list, where);
    if (!feature) return nullptr;
    if (position < guesses.size())
      guesses[position] = last_;
    else if (position == guesses.size() && position < 4096)
      guesses.push_back(last_);
    return feature;
  }

  SurveyedFeature* find(std::string_view name, bool list, const uint8_t* where) {
    const auto key = std::pair<bool, std::string>(list, name);
    last_ = survey_.features_.find(key);
    if (last_ != survey_.features_.end()) return &last_->second;
    if (survey_.features_.size() >= survey_.most_names_) {
      result.status = kTooMany;
      result.offset = static_cast<size_t>(where - data_);
      return nullptr;
    }
    last_ = survey_.features_.emplace(key, SurveyedFeature{}).first;
    added_.push_back(last_);
    return &last_->second;
  }

  bool feature(Span span, Seen& seen) {
    Reader r = reader_of(data_, span);
    const bool ok = each_list(r, [&](int kind, Span list) {
      if (kind != seen.kind) {
        seen = Seen{};
        seen.kind = kind;
      }
      Reader inner = reader_of(data_, list);
      const bool read = kind == kBytesList   ? strings(seen, inner)
                        : kind == kFloatList ? floats(seen, inner)
                                             : ints(seen, inner);
      return read || malformed(inner);
    });
    if (!ok && result.status == kOk) return malformed(r);
    return ok;
  }

  bool strings(Seen& seen, Reader& r) {
    return each_string(r, [&](Span span) {
      seen.small = std::min<uint64_t>(seen.small, span.size());
      seen.large = std::max<uint64_t>(seen.large, span.size());
      seen.count++;
      return true;
    });
  }

  bool floats(Seen& seen, Reader& r) {
    return each_float_run(r, [&](const uint8_t* from, size_t count) {
      for (size_t i = 0; i < count; i++) {
        float value;
        std::memcpy(&value, from + 4 * i, 4);
        seen.nans += value != value;
        seen.low = value < seen.low ? value : seen.low;
        seen.high = value > seen.high ? value : seen.high;
      }
      seen.count += count;
      return true;
    });
  }

  bool ints(Seen& seen, Reader& r) {
    return each_int_run(r, [&](Span run) {
      return each_varint(r, run, limit_, [&](uint64_t bits) {
        const auto value = static_cast<int64_t>(bits);
        seen.least = std::min(seen.least, value);
        seen.most = std::max(seen.most, value);
        seen.count++;
      });
    });
  }

  static void count_instance(FeatureStats& now, const Seen& seen) {
    now.kinds[seen.kind]++;
    now.shortest = std::min(now.shortest, seen.count);
    now.longest = std::max(now.longest, seen.count);
    now.values += seen.count;
    now.least = std::min(now.least, seen.least);
    now.most = std::max(now.most, seen.most);
    now.low = std::min(now.low, static_cast<double>(seen.low));
    now.high = std::max(now.high, static_cast<double>(seen.high));
    now.nans += seen.nans;
    now.small = std::min(now.small, seen.small);
    now.large = std::max(now.large, seen.large);
  }

  static void count(FeatureStats& all, const FeatureStats& now) {
    for (int kind = 0; kind < 4; kind++) all.kinds[kind] += now.kinds[kind];
    all.records += now.records;
    all.shortest = std::min(all.shortest, now.shortest);
    all.longest = std::max(all.longest, now.longest);
    all.values += now.values;
    all.least = std::min(all.least, now.least);
    all.most = std::max(all.most, now.most);
    all.low = std::min(all.low, now.low);
    all.high = std::max(all.high, now.high);
    all.nans += now.nans;
    all.small = std::min(all.small, now.small);
    all.large = std::max(all.large, now.large);
    all.fewest = std::min(all.fewest, now.fewest);
    all.most_steps = std::max(all.most_steps, now.most_steps);
  }

  ExampleSurvey& survey_;
  const uint8_t* data_;
  const uint8_t* limit_;
  Entry entry_;
  uint64_t& stamp_ = survey_.stamp_;
  std::vector<SurveyedFeature*> found_;                   // in this message, each once
  std::vector<ExampleSurvey::Features::iterator> added_;  // by this message
  std::vector<ExampleSurvey::Features::iterator>
      guesses_[2];  // by position; the names of a message at fault are gone, and so is this then
  ExampleSurvey::Features::iterator last_;
  size_t positions_[2] = {0, 0};  // entries of this message so far
  bool undefined_ = false;        // whether this message has fields that no Example has
};

Surveyed ExampleSurvey::add(const uint8_t* data, size_t size, const int64_t* starts,
                            const int64_t* sizes, size_t count, bool checked) {
  const std::lock_guard lock(mutex_);
  Surveying surveying(*this, data, size);
  Surveyed& result = surveying.result;
  for (; result.done < count; result.done++) {
    const uint64_t start = static_cast<uint64_t>(starts[result.done]),
                   length = static_cast<uint64_t>(sizes[result.done]);
    const size_t footer = checked ? 0 : kFrameFooter;
    const bool inside = start <= size && length <= size - start && size - start - length >= footer;
    if (!inside ||
        (!checked && first_bad_data(data, starts + result.done, sizes + result.done, 1) == 0)) {
      result.status = inside ? kBadDataCrc : kTruncated;
      result.offset = start;
      break;
    }
    const uint8_t* at = data + start;
    if (!surveying.message({at, at + length})) break;
  }
  return result;
}

uint64_t ExampleSurvey::others() const {
  const std::lock_guard lock(mutex_);
  return others_;
}

ExampleSurvey::Result ExampleSurvey::result() const {
  const std::lock_guard lock(mutex_);
  return {records_, with_lists_, features_};
}

}  // namespace tensorwire
